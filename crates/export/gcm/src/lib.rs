//! Data points to Google Cloud Monitoring.
