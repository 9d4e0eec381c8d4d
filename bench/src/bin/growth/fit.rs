//! Cost per node and per pod: a plane fitted to the measurements.

/// One measured cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    pub(crate) nodes: f64,
    pub(crate) pods: f64,
    pub(crate) cost: f64,
}

/// A fixed cost, and costs per node and per pod.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fit {
    pub(crate) fixed: f64,
    pub(crate) node: f64,
    pub(crate) pod: f64,
    /// The largest relative error of a point.
    pub(crate) worst: f64,
}

impl Fit {
    /// Least squares of relative errors, so that ten nodes weigh as much as five thousand. None
    /// with fewer than three points, or if nodes and pods are collinear.
    pub(crate) fn of(points: &[Point]) -> Option<Self> {
        let usable: Vec<&Point> = points.iter().filter(|point| point.cost > 0.0).collect();
        let mut matrix = [[0.0; 3]; 3];
        let mut right = [0.0; 3];
        for point in &usable {
            let row = [1.0, point.nodes, point.pods].map(|x| x / point.cost);
            for (out, x) in matrix.iter_mut().zip(row) {
                for (cell, y) in out.iter_mut().zip(row) {
                    *cell += x * y;
                }
            }
            for (cell, x) in right.iter_mut().zip(row) {
                *cell += x;
            }
        }
        let [fixed, node, pod] = solve(matrix, right)?;
        let off = |p: &&Point| ((fixed + node * p.nodes + pod * p.pods) / p.cost - 1.0).abs();
        let worst = usable.iter().map(off).fold(0.0, f64::max);
        Some(Self {
            fixed,
            node,
            pod,
            worst,
        })
    }
}

/// Cramer's rule for three unknowns, with a matrix of normal equations. Its diagonal is scaled to
/// one first: sizes that differ by thousands would otherwise look collinear.
fn solve(matrix: [[f64; 3]; 3], right: [f64; 3]) -> Option<[f64; 3]> {
    let [[a, _, _], [_, b, _], [_, _, c]] = matrix;
    let size = [a, b, c].map(f64::sqrt);
    if size.contains(&0.0) {
        return None;
    }
    let mut matrix = matrix;
    for (row, by) in matrix.iter_mut().zip(size) {
        for (cell, and_by) in row.iter_mut().zip(size) {
            *cell /= by * and_by;
        }
    }
    let whole = determinant(matrix);
    if whole < 1e-9 {
        return None;
    }
    let mut answer = [0.0; 3];
    for (column, (out, by)) in answer.iter_mut().zip(size).enumerate() {
        let mut replaced = matrix;
        for ((row, value), row_by) in replaced.iter_mut().zip(right).zip(size) {
            if let Some(cell) = row.get_mut(column) {
                *cell = value / row_by;
            }
        }
        *out = determinant(replaced) / whole / by;
    }
    Some(answer)
}

/// The dot product of the first row and the cross product of the others.
fn determinant([first, second, third]: [[f64; 3]; 3]) -> f64 {
    let ([ax, ay, az], [bx, by, bz]) = (second, third);
    let spanned = [ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx];
    first
        .iter()
        .zip(spanned)
        .map(|(one, other)| one * other)
        .sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIZES: [(f64, f64); 5] = [
        (10.0, 300.0),
        (100.0, 3_000.0),
        (1_000.0, 30_000.0),
        (5_000.0, 150_000.0),
        (1_000.0, 10_000.0),
    ];

    fn points(sizes: &[(f64, f64)], cost: impl Fn(f64, f64) -> f64) -> Vec<Point> {
        let point = |(nodes, pods): &(f64, f64)| Point {
            nodes: *nodes,
            pods: *pods,
            cost: cost(*nodes, *pods),
        };
        sizes.iter().map(point).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_plane_is_recovered(fixed in 1.0..100.0_f64, node in 0.01..10.0_f64, pod in 0.01..10.0_f64) {
            let fit = Fit::of(&points(&SIZES, |n, p| fixed + node * n + pod * p)).unwrap();
            for (found, wanted) in [(fit.fixed, fixed), (fit.node, node), (fit.pod, pod)] {
                prop_assert!((found - wanted).abs() <= 1e-3 * wanted + 1e-3, "{fit:?}");
            }
            prop_assert!(fit.worst < 1e-3);
        }
    }

    #[test]
    fn a_constant_number_of_pods_per_node_has_no_fit() {
        assert_eq!(Fit::of(&points(&SIZES[..4], |n, p| 1.0 + n + p)), None);
        assert_eq!(Fit::of(&[]), None);
    }

    #[test]
    fn the_error_of_a_nonlinear_cost_is_large() {
        let bent = Fit::of(&points(&SIZES, |n, p| 1.0 + n * n + p)).unwrap();
        assert!(bent.worst > 0.1, "{bent:?}");
    }
}
