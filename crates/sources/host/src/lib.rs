//! Statistics of a Linux node, read from cgroups and `/proc`.
