//! A pod runtime that runs containers as plain processes of this host.
