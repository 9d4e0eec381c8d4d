//! What is shipped: the program as images and archives run it, and what lies beside it.
//!
//! A build starts in [`program`], which compiles one static binary for a [`target`]. [`root`] puts
//! it into the files of an image with its bill of materials ([`sbom`]) and certificate authorities,
//! and [`image`] writes those as an OCI or Docker archive, without a container engine. [`release`]
//! makes the files of a release. The same source gives the same bytes.
#![expect(
    clippy::print_stdout,
    reason = "the output of a command-line tool is its product"
)]

pub mod archive;
pub mod image;
pub mod licenses;
pub mod program;
pub mod release;
pub mod root;
pub mod sbom;
pub mod source;
pub mod target;
