//! A report in one file that needs nothing else: no network, no server, no script.
//!
//! Whatever a caller says is escaped, and the page's own policy forbids it to load anything.

mod axis;
mod chart;
mod clip;
mod curve;

use std::fmt::Write as _;
use std::path::Path;

use htmlize::escape_all_quotes as escaped;

use crate::error::{Error, Result};
use crate::history::History;

pub use chart::Chart;
pub use clip::{CaptionedClip, Verdict};
pub use curve::Series;

const STYLE: &str = include_str!("style.css");

/// Nothing but what is in the page: its own style and pictures.
const POLICY: &str = "default-src 'none'; img-src data:; style-src 'unsafe-inline'";

/// A report, section by section in the order of the calls.
///
/// ```
/// use journal::{Chart, Page, Score, Series};
///
/// let loss = Series { name: "video".into(), points: vec![(1, 0.9), (2, 0.5), (3, 0.4)] };
/// let page = Page::new("A short run")
///     .text("Three steps of a model that draws shapes.")
///     .scores("Scores", [Score { name: "all".into(), right: 88, of: 96 }])
///     .curves("Curves", [Chart { title: "Loss".into(), series: vec![loss] }]);
/// assert!(page.html().starts_with("<!doctype html>"));
/// ```
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    body: String,
}

/// How many were right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Score {
    /// What was counted.
    pub name: String,
    /// So many were right.
    pub right: u64,
    /// Of so many.
    pub of: u64,
}

impl Page {
    /// An empty report.
    pub fn new(title: impl Into<String>) -> Page {
        Page { title: title.into(), body: String::new() }
    }

    /// A paragraph.
    pub fn text(self, text: &str) -> Page {
        self.with(|body| body.push_str(&format!("<p>{}</p>\n", escaped(text))))
    }

    /// The one number to remember, and what it is.
    pub fn headline(self, number: &str, meaning: &str) -> Page {
        self.with(|body| {
            let (number, meaning) = (escaped(number), escaped(meaning));
            let _ =
                writeln!(body, r#"<p class="headline"><b>{number}</b> <span>{meaning}</span></p>"#);
        })
    }

    /// What is known about a run: recipe, machine, times.
    pub fn facts<K: AsRef<str>, V: AsRef<str>>(
        self,
        heading: &str,
        facts: impl IntoIterator<Item = (K, V)>,
    ) -> Page {
        self.section(heading, |body| {
            body.push_str("<dl class=\"card facts\">\n");
            for (key, value) in facts {
                let (key, value) = (escaped(key.as_ref()), escaped(value.as_ref()));
                let _ = writeln!(body, "<div><dt>{key}</dt><dd>{value}</dd></div>");
            }
            body.push_str("</dl>\n");
        })
    }

    /// A table of scores, each with its bar.
    pub fn scores(self, heading: &str, scores: impl IntoIterator<Item = Score>) -> Page {
        self.section(heading, |body| {
            body.push_str("<table class=\"card scores\">\n");
            scores.into_iter().for_each(|score| score.show(body));
            body.push_str("</table>\n");
        })
    }

    /// A table of anything; cells that a row lacks are empty.
    pub fn table(self, heading: &str, columns: &[&str], rows: &[Vec<String>]) -> Page {
        self.section(heading, |body| {
            body.push_str("<div class=\"card wide\"><table>\n<thead><tr>");
            columns.iter().for_each(|name| cell(body, "th", name));
            body.push_str("</tr></thead>\n<tbody>\n");
            for row in rows {
                body.push_str("<tr>");
                for index in 0..columns.len() {
                    cell(body, "td", row.get(index).map_or("", String::as_str));
                }
                body.push_str("</tr>\n");
            }
            body.push_str("</tbody></table></div>\n");
        })
    }

    /// Charts beside each other.
    pub fn curves(self, heading: &str, charts: impl IntoIterator<Item = Chart>) -> Page {
        self.section(heading, |body| {
            body.push_str("<div class=\"charts\">\n");
            charts.into_iter().for_each(|chart| chart.show(body));
            body.push_str("</div>\n");
        })
    }

    /// All curves of a run: what others recorded first, for that is what it was for.
    pub fn history(self, heading: &str, history: &History) -> Page {
        let chart = |title: &str, series| Chart { title: title.to_owned(), series };
        let mut charts: Vec<Chart> = Vec::new();
        for series in history.recorded() {
            charts.push(chart(&series.name.clone(), vec![series]));
        }
        charts.push(chart("Loss", history.losses()));
        charts.push(chart("Loss by noise level", history.losses_by_level()));
        charts.push(chart("Learning rate", history.rates()));
        charts.push(chart("Gradient norm, before clipping", history.gradient_norms()));
        // One speed says it all: the others are the same curve in other units.
        let speeds = history.speeds();
        if let Some(series) = speeds.into_iter().find(|own| own.name == "tokens_per_second") {
            charts.push(chart("Tokens per second", vec![series]));
        }
        charts.retain(|chart| !chart.series.is_empty());
        self.curves(heading, charts)
    }

    /// Clips in a grid, each with what the judge made of it.
    pub fn clips(self, heading: &str, clips: impl IntoIterator<Item = CaptionedClip>) -> Page {
        self.section(heading, |body| {
            body.push_str("<div class=\"clips\">\n");
            clips.into_iter().for_each(|clip| clip.show(body));
            body.push_str("</div>\n");
        })
    }

    /// The whole file.
    pub fn html(&self) -> String {
        let (title, body) = (escaped(self.title.as_str()), &self.body);
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
             <h1>{title}</h1>\n{body}</main>\n</body>\n</html>\n"
        )
    }

    /// Writes the file aside and renames it into place.
    ///
    /// # Errors
    /// The folder is missing or cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        data::aside::write_whole(path, self.html().as_bytes())
            .map_err(|source| Error::file("write", path, source))
    }

    fn section(self, heading: &str, fill: impl FnOnce(&mut String)) -> Page {
        self.with(|body| {
            body.push_str("<section>\n");
            if !heading.is_empty() {
                let _ = writeln!(body, "<h2>{}</h2>", escaped(heading));
            }
            fill(body);
            body.push_str("</section>\n");
        })
    }

    fn with(mut self, add: impl FnOnce(&mut String)) -> Page {
        add(&mut self.body);
        self
    }
}

impl Score {
    fn show(&self, body: &mut String) {
        let (name, right, of) = (escaped(self.name.as_str()), self.right, self.of);
        let share = 100.0 * right as f64 / of.max(1) as f64;
        let width = share.clamp(0.0, 100.0);
        let _ = writeln!(
            body,
            "<tr><th scope=\"row\">{name}</th>\
             <td class=\"bar\"><i style=\"width:{width:.1}%\"></i></td>\
             <td class=\"number\">{share:.1} %</td>\
             <td class=\"number quiet\">{right} of {of}</td></tr>"
        );
    }
}

fn cell(body: &mut String, kind: &str, text: &str) {
    // Numbers stand below each other only if they end in the same place.
    let is_number = text.trim_end_matches(['%', ' ']).parse::<f64>().is_ok();
    let class = if is_number { " class=\"number\"" } else { "" };
    let _ = write!(body, "<{kind}{class}>{}</{kind}>", escaped(text));
}
