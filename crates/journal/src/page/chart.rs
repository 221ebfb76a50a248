//! Curves as a picture in the page: raw points thin, their course bold, values under the pointer.

use std::fmt::Write as _;

use htmlize::escape_all_quotes as escaped;

use super::axis::{Axis, number};
use super::curve::{Point, Series, smoothed, thinned};

/// The picture's own units; a browser stretches it.
const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 48.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 24.0;

/// More points than this are not seen.
const RAW_POINTS: usize = 600;
const SMOOTH_POINTS: usize = 240;
const POINTER_COLUMNS: usize = 80;

/// As many points as can have a dot each.
const DOTS: usize = 40;

/// As many colours as the style has; then they begin anew, dashed.
const COLOURS: usize = 8;

/// Several curves on the same axes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// The curves.
    pub series: Vec<Series>,
}

/// A curve that is ready to be drawn.
struct Drawn {
    name: String,
    class: String,
    raw: Vec<Point>,
    smooth: Option<Vec<Point>>,
}

/// What all curves of a chart share.
struct Axes {
    steps: Axis,
    values: Axis,
}

impl Chart {
    pub(super) fn show(&self, body: &mut String) {
        let drawn: Vec<Drawn> = self.series.iter().enumerate().map(Drawn::new).collect();
        let points = drawn.iter().flat_map(|curve| &curve.raw);
        let frame = Axis::of_steps(points.clone().map(|point| point.0))
            .zip(Axis::of_values(points.map(|point| point.1)))
            .map(|(steps, values)| Axes { steps, values });

        let title = escaped(self.title.as_str());
        let _ = writeln!(body, "<figure class=\"card chart\"><h3>{title}</h3>");
        self.show_legend(body, &drawn);
        match frame {
            Some(frame) => frame.show(body, &title, &drawn),
            None => body.push_str("<p class=\"quiet empty\">no points</p>\n"),
        }
        self.show_omissions(body, &drawn);
        body.push_str("</figure>\n");
    }

    fn show_legend(&self, body: &mut String, drawn: &[Drawn]) {
        body.push_str("<ul class=\"legend\">");
        for curve in drawn {
            let last = curve.course().last().map_or("–".to_owned(), |point| number(point.1));
            // A curve alone is named by the title.
            let is_named = drawn.len() > 1 || self.title != curve.name;
            let name = if is_named { escaped(curve.name.as_str()) } else { "last".into() };
            let class = &curve.class;
            let _ = write!(body, "<li><i class=\"{class}\"></i>{name} <b>{last}</b></li>");
        }
        body.push_str("</ul>\n");
    }

    /// A picture that leaves something out says so.
    fn show_omissions(&self, body: &mut String, drawn: &[Drawn]) {
        let given: usize = self.series.iter().map(|series| series.points.len()).sum();
        let shown: usize = drawn.iter().map(|curve| curve.raw.len()).sum();
        if given > shown {
            let missing = given - shown;
            let text = if missing == 1 { "1 point is" } else { &format!("{missing} points are") };
            let _ = writeln!(body, "<p class=\"quiet\">{text} not finite and not shown</p>");
        }
    }
}

impl Drawn {
    fn new((index, series): (usize, &Series)) -> Drawn {
        let dash = if (index / COLOURS) % 2 == 1 { " dash" } else { "" };
        let raw = series.drawable();
        let smooth = smoothed(&raw);
        let class = format!("c{}{dash}", index % COLOURS);
        Drawn { name: series.name.clone(), class, raw, smooth }
    }

    /// The line that the eye should follow.
    fn course(&self) -> &[Point] {
        self.smooth.as_deref().unwrap_or(&self.raw)
    }
}

impl Axes {
    fn show(&self, body: &mut String, title: &str, drawn: &[Drawn]) {
        let _ = writeln!(
            body,
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">"
        );
        self.show_grid(body);
        let raw = drawn.iter().filter(|curve| curve.smooth.is_some());
        raw.for_each(|curve| {
            self.show_line(body, "raw", &curve.class, &thinned(&curve.raw, RAW_POINTS))
        });
        for curve in drawn {
            self.show_line(body, "line", &curve.class, &thinned(curve.course(), SMOOTH_POINTS));
            if curve.raw.len() <= DOTS {
                curve.raw.iter().for_each(|point| self.show_dot(body, "dot", &curve.class, *point));
            }
        }
        self.show_columns(body, drawn);
        body.push_str("</svg>\n");
    }

    fn show_grid(&self, body: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for tick in self.values.value_ticks() {
            let (y, label) = (self.down(tick.place), tick.label);
            let _ = writeln!(
                body,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>\
                 <text class=\"end\" x=\"{:.1}\" y=\"{:.1}\">{label}</text>",
                LEFT - 6.0,
                y + 3.5
            );
        }
        let _ = writeln!(body, "<path class=\"axis\" d=\"M{LEFT} {bottom}H{right}\"/>");
        for tick in self.steps.step_ticks() {
            let (x, label) = (self.across(tick.place), tick.label);
            let _ = writeln!(
                body,
                "<path class=\"axis\" d=\"M{x:.1} {bottom}v4\"/>\
                 <text class=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{label}</text>",
                bottom + 16.0
            );
        }
        let (x, y) = (LEFT - 14.0, bottom + 16.0);
        let _ = writeln!(body, "<text class=\"end\" x=\"{x}\" y=\"{y}\">step</text>");
        if self.values.is_logarithmic {
            let _ = writeln!(body, "<text x=\"{}\" y=\"{}\">log</text>", LEFT + 4.0, TOP + 6.0);
        }
    }

    fn show_line(&self, body: &mut String, kind: &str, class: &str, points: &[Point]) {
        if points.len() < 2 {
            return;
        }
        let _ = write!(body, "<polyline class=\"{kind} {class}\" points=\"");
        for point in points {
            let (x, y) = self.place(*point);
            let _ = write!(body, "{x:.1},{y:.1} ");
        }
        body.push_str("\"/>\n");
    }

    fn show_dot(&self, body: &mut String, kind: &str, class: &str, point: Point) {
        let (x, y) = self.place(point);
        let _ =
            write!(body, "<circle class=\"{kind} {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>");
    }

    /// Columns that are not seen until the pointer is above one: then a line, dots and the values.
    fn show_columns(&self, body: &mut String, drawn: &[Drawn]) {
        let steps = columns(drawn);
        for (index, step) in steps.iter().enumerate() {
            let x = self.place((*step, 0.0)).0;
            let half = |other: Option<&f64>, edge: f64| {
                other.map_or(edge, |other| (self.place((*other, 0.0)).0 + x) / 2.0)
            };
            let from = half(index.checked_sub(1).and_then(|index| steps.get(index)), LEFT);
            let to = half(steps.get(index + 1), WIDTH - RIGHT);
            let _ = write!(
                body,
                "<g class=\"column\"><path class=\"pointer\" d=\"M{x:.1} {TOP}V{}\"/>",
                HEIGHT - BOTTOM
            );
            let mut told = format!("step {step}");
            for curve in drawn {
                let Some(nearest) = nearest(curve.course(), *step) else { continue };
                let is_here = (from..=to).contains(&self.place(nearest).0);
                if is_here {
                    self.show_dot(body, "mark", &curve.class, nearest);
                    let _ =
                        write!(told, "\n{}: {}", escaped(curve.name.as_str()), number(nearest.1));
                }
            }
            let (wide, high) = (to - from, HEIGHT - BOTTOM - TOP);
            let _ = writeln!(
                body,
                "<rect x=\"{from:.1}\" y=\"{TOP}\" width=\"{wide:.1}\" height=\"{high}\">\
                 <title>{told}</title></rect></g>"
            );
        }
    }

    fn place(&self, (step, value): Point) -> (f64, f64) {
        (self.across(self.steps.place(step)), self.down(self.values.place(value)))
    }

    fn across(&self, share: f64) -> f64 {
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }

    fn down(&self, share: f64) -> f64 {
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    }
}

/// The steps that get a column: all, or some at even distances.
fn columns(drawn: &[Drawn]) -> Vec<f64> {
    let mut steps: Vec<f64> =
        drawn.iter().flat_map(|curve| &curve.raw).map(|point| point.0).collect();
    steps.sort_by(f64::total_cmp);
    steps.dedup();
    if steps.len() <= POINTER_COLUMNS {
        return steps;
    }
    let last = steps.len() - 1;
    (0..POINTER_COLUMNS).map(|index| steps[index * last / (POINTER_COLUMNS - 1)]).collect()
}

/// The point whose step is nearest; points are in order of steps.
fn nearest(points: &[Point], step: f64) -> Option<Point> {
    let after = points.partition_point(|point| point.0 < step);
    let around = [after.checked_sub(1), Some(after)].into_iter().flatten();
    let near = around.filter_map(|index| points.get(index).copied());
    near.min_by(|left, right| (left.0 - step).abs().total_cmp(&(right.0 - step).abs()))
}
