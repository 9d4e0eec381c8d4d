//! Reading the vector files. `e2e/vectors/model` writes them.

/// The fields of each line that is not a comment.
pub(crate) fn rows(file: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    assert!(
        file.lines().count() > 20,
        "a file without lines would prove nothing"
    );
    file.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split('\t').collect())
}

/// The fields of each line of a file in which every line has as many.
pub(crate) fn rows_of<const N: usize>(
    file: &'static str,
) -> impl Iterator<Item = [&'static str; N]> {
    rows(file).map(|fields| <[&str; N]>::try_from(fields).expect("every line has as many fields"))
}
