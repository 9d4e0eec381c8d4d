//! A chart of costs by size of the cluster: both axes logarithmic, readable on light and on dark
//! pages.

use std::fmt::Write as _;

/// One of several charts side by side.
#[derive(Debug, Clone)]
pub(crate) struct Panel {
    /// The quantity and its unit.
    pub(crate) title: String,
    /// The lines, ours first.
    pub(crate) lines: Vec<Line>,
}

/// The points of one program.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// Nodes and cost; all above 0.
    pub(crate) points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 44.0;

/// One colour per line, each readable on white and on black.
const COLORS: [&str; 4] = ["#2f81f7", "#db6d28", "#3fb950", "#a371f7"];

const STYLE: &str = "text{font:12px system-ui,sans-serif;fill:#57606a}.t{font-weight:600;font-size:13px}\
.g{stroke:#8b949e;stroke-opacity:.25}.a{stroke:#8b949e}\
@media(prefers-color-scheme:dark){text{fill:#adbac7}}";

/// A range that starts and ends at a power of ten.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Decades {
    from: i32,
    to: i32,
}

impl Decades {
    fn around(values: impl Iterator<Item = f64>) -> Self {
        let (mut from, mut to) = (i32::MAX, i32::MIN);
        for value in values.filter(|value| value.is_finite() && *value > 0.0) {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "a double has a few hundred decades"
            )]
            let (low, high) = (value.log10().floor() as i32, value.log10().ceil() as i32);
            from = from.min(low);
            to = to.max(high);
        }
        if from > to {
            return Self { from: 0, to: 1 };
        }
        Self {
            from,
            to: to.max(from + 1),
        }
    }

    /// Relative position of a value, from 0 to 1.
    fn position(self, value: f64) -> f64 {
        (value.log10() - f64::from(self.from)) / f64::from(self.to - self.from)
    }
}

/// Draws the whole chart.
pub(crate) fn draw(panels: &[Panel]) -> String {
    let count = u32::try_from(panels.len()).unwrap_or(1);
    let width = WIDTH * f64::from(count.max(1));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {HEIGHT}\" width=\"{width}\" height=\"{HEIGHT}\" \
         role=\"img\">\n<style>{STYLE}</style>\n"
    );
    for (panel, number) in panels.iter().zip(0_u32..) {
        let _ = writeln!(
            svg,
            "<g transform=\"translate({} 0)\">",
            WIDTH * f64::from(number)
        );
        panel.draw(&mut svg);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

impl Panel {
    fn draw(&self, svg: &mut String) {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let across = Decades::around(points().map(|(nodes, _)| *nodes));
        let up = Decades::around(points().map(|(_, cost)| *cost));
        let x = |nodes: f64| LEFT + across.position(nodes) * (WIDTH - LEFT - RIGHT);
        let y = |cost: f64| HEIGHT - BOTTOM - up.position(cost) * (HEIGHT - TOP - BOTTOM);
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        let title = escaped(&self.title);
        let _ = writeln!(
            svg,
            "<text class=\"t\" x=\"{LEFT}\" y=\"18\">{title}</text>"
        );
        for decade in across.from..=across.to {
            let at = x(10_f64.powi(decade));
            let _ = writeln!(
                svg,
                "<path class=\"g\" d=\"M{at:.1} {TOP}V{bottom}\"/><text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 16.0,
                power(decade)
            );
        }
        for decade in up.from..=up.to {
            let at = y(10_f64.powi(decade));
            let _ = writeln!(
                svg,
                "<path class=\"g\" d=\"M{LEFT} {at:.1}H{right}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                power(decade)
            );
        }
        let _ = writeln!(
            svg,
            "<path class=\"a\" fill=\"none\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/><text x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"middle\">nodes of 30 pods</text>",
            f64::midpoint(LEFT, right),
            HEIGHT - 10.0
        );
        for (line, color) in self.lines.iter().zip(COLORS.iter().cycle()) {
            let mut path = String::new();
            for (index, (nodes, cost)) in line.points.iter().enumerate() {
                let command = if index == 0 { 'M' } else { 'L' };
                let _ = write!(path, "{command}{:.1} {:.1}", x(*nodes), y(*cost));
                let _ = writeln!(
                    svg,
                    "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"{color}\"/>",
                    x(*nodes),
                    y(*cost)
                );
            }
            let _ = writeln!(
                svg,
                "<path d=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>"
            );
            if let Some((nodes, cost)) = line.points.last() {
                let _ = writeln!(
                    svg,
                    "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" style=\"fill:{color};font-weight:600\">{}</text>",
                    x(*nodes) - 8.0,
                    y(*cost) - 7.0,
                    escaped(&line.name)
                );
            }
        }
    }
}

/// Formats a power of ten.
fn power(decade: i32) -> String {
    let value = 10_f64.powi(decade);
    match decade {
        ..0 => format!("{value:.*}", usize::try_from(-decade).unwrap_or(0)),
        0..=3 => format!("{value:.0}"),
        4..=5 => format!("{:.0}k", value / 1e3),
        _ => format!("{:.0}M", value / 1e6),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decades_contain_every_value() {
        let decades = Decades::around([12.0, 0.0, f64::NAN, 4_999.0].into_iter());
        assert_eq!(decades, Decades { from: 1, to: 4 });
        assert!((decades.position(100.0) - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!(
            Decades::around([1_000.0].into_iter()),
            Decades { from: 3, to: 4 }
        );
        assert_eq!(Decades::around([].into_iter()), Decades { from: 0, to: 1 });
        let words: Vec<String> = [-2, 0, 3, 4, 6].map(power).into();
        assert_eq!(words, ["0.01", "1", "1000", "10k", "1M"]);
    }

    #[test]
    fn a_picture_of_two_programs() {
        let line = |name: &str, by: f64| Line {
            name: name.to_owned(),
            points: vec![(10.0, by), (100.0, 10.0 * by), (5_000.0, 500.0 * by)],
        };
        let panel = Panel {
            title: "CPU & memory".to_owned(),
            lines: vec![line("ours", 0.5), line("peer", 4.0)],
        };
        insta::assert_snapshot!(draw(&[panel]));
    }
}
