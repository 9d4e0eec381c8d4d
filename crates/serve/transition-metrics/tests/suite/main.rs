//! Families of pods' lives.
