//! What a page shows, and what never gets into it.

use std::fs;

use journal::{CaptionedClip, Chart, Journal, Page, Score, Series, Verdict, history};

use crate::run::{report, tell};

const NASTY: &str = "<script>alert('1')</script> & \"quoted\"";

fn chart(points: Vec<(u64, f64)>) -> Chart {
    Chart { title: "Loss".into(), series: vec![Series { name: "video".into(), points }] }
}

fn shown(chart: Chart) -> String {
    Page::new("t").curves("", [chart]).html()
}

/// A GIF of one frame.
fn gif(width: u16, height: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = gif::Encoder::new(&mut bytes, width, height, &[0, 0, 0, 255, 0, 0]).unwrap();
    let buffer = vec![1; usize::from(width) * usize::from(height)].into();
    encoder.write_frame(&gif::Frame { width, height, buffer, ..Default::default() }).unwrap();
    drop(encoder);
    bytes
}

/// The numbers of all coordinates of a page's pictures.
fn coordinates(html: &str) -> Vec<f64> {
    let attributes =
        ["points=\"", " d=\"", " x=\"", " y=\"", "cx=\"", "cy=\"", " width=\"", " height=\""];
    let mut found = Vec::new();
    for attribute in attributes {
        for rest in html.split(attribute).skip(1) {
            let value = rest.split('"').next().unwrap();
            let numbers =
                value.split([' ', ',', 'M', 'H', 'V', 'v']).filter(|word| !word.is_empty());
            found.extend(numbers.map(|word| word.parse::<f64>().unwrap()));
        }
    }
    found
}

#[test]
fn all_that_is_said_is_escaped() {
    let name = format!("{NASTY} again");
    let series = Series { name, points: (0..3).map(|at| (at, 1.0)).collect() };
    let html = Page::new(NASTY)
        .text(NASTY)
        .headline(NASTY, NASTY)
        .facts(NASTY, [(NASTY, NASTY)])
        .scores(NASTY, [Score { name: NASTY.into(), right: 1, of: 2 }])
        .table(NASTY, &[NASTY], &[vec![NASTY.into()]])
        .curves(NASTY, [Chart { title: NASTY.into(), series: vec![series] }])
        .clips(
            NASTY,
            [CaptionedClip::new(gif(2, 2), NASTY, Verdict::Wrong).unwrap().with_note(NASTY)],
        )
        .html();
    assert!(!html.contains("<script") && !html.contains("alert('") && !html.contains("\"quoted"));
    let escaped = "&lt;script&gt;alert(&apos;1&apos;)&lt;/script&gt; &amp; &quot;quoted&quot;";
    // Title and heading; text; headline; facts; scores; table; chart, its label, legend and three
    // columns; clip, its name and note; five headings of sections.
    assert_eq!(html.matches(escaped).count(), 2 + 1 + 2 + 2 + 1 + 2 + 6 + 3 + 5);
}

#[test]
fn nothing_is_loaded_from_elsewhere() {
    let html = Page::new("t")
        .curves("", [chart(vec![(1, 1.0), (2, 2.0)])])
        .clips("", [CaptionedClip::new(gif(3, 2), "a", Verdict::Right).unwrap()])
        .html();
    for word in ["http:", "https:", "//", "@import", "url(", "<link", "<script"] {
        let mut outside =
            html.split("base64,").map(|part| part.split_once('"').map_or(part, |two| two.1));
        assert!(!outside.any(|part| part.contains(word)), "{word}");
    }
    assert!(html.contains("default-src 'none'"));
    assert!(html.contains("prefers-color-scheme: dark"));
}

#[test]
fn points_that_are_not_finite_are_left_out_and_counted() {
    let values = [1.0, f64::NAN, 2.0, f64::INFINITY, -f64::INFINITY, 3.0, 1e300];
    let points = values.iter().enumerate().map(|(step, value)| (step as u64, *value)).collect();
    let html = shown(chart(points));
    assert!(!html.contains("NaN") && !html.contains("inf\"") && !html.contains("inf "));
    assert!(html.contains("4 points are not finite and not shown"));
    assert_eq!(html.matches("class=\"dot").count(), 3);
    assert!(coordinates(&html).iter().all(|at| (0.0..=440.0).contains(at)));
}

#[test]
fn a_chart_without_points_says_so() {
    let nothing = shown(Chart { title: "Loss".into(), series: Vec::new() });
    for html in [nothing, shown(chart(Vec::new())), shown(chart(vec![(1, f64::NAN)]))] {
        assert!(html.contains("no points") && !html.contains("<svg"), "{html}");
    }
    // One curve of two is empty: the other is drawn, both are in the legend.
    let mut two = chart(vec![(1, 1.0), (2, 2.0)]);
    two.series.push(Series { name: "audio".into(), points: Vec::new() });
    let html = shown(two);
    assert_eq!((html.matches("<polyline").count(), html.matches("<li>").count()), (1, 2));
}

#[test]
fn a_single_point_is_a_dot_in_the_middle() {
    let html = shown(chart(vec![(7, 0.5)]));
    assert!(html.contains("<circle class=\"dot c0\" cx=\"238.0\" cy=\"113.0\""), "{html}");
    assert!(!html.contains("<polyline"));
}

#[test]
fn few_points_have_dots_and_many_have_a_course() {
    let few = shown(chart((1..=5).map(|step| (step, step as f64)).collect()));
    assert_eq!((few.matches("class=\"dot").count(), few.matches("<polyline").count()), (5, 1));
    assert_eq!(few.matches("class=\"column\"").count(), 5);
    assert!(few.contains("<title>step 2\nvideo: 2</title>"));
    let many = shown(chart((1..=5000).map(|step| (step, (step % 7) as f64)).collect()));
    assert_eq!((many.matches("class=\"dot").count(), many.matches("<polyline").count()), (0, 2));
    assert_eq!(many.matches("class=\"column\"").count(), 80);
    assert!(many.len() < 60_000, "{}", many.len());
}

#[test]
fn a_curve_goes_up_when_its_values_do() {
    let html = shown(chart(vec![(0, 0.0), (10, 5.0), (20, 10.0)]));
    let line = html.split("points=\"").nth(1).unwrap().split('"').next().unwrap();
    let points: Vec<(f64, f64)> = line
        .split_whitespace()
        .map(|pair| pair.split_once(',').unwrap())
        .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
        .collect();
    assert_eq!((points[0].0, points[1].0, points[2].0), (48.0, 238.0, 428.0));
    assert_eq!(points[0].1, 216.0);
    assert!(points[0].1 > points[1].1 && points[1].1 > points[2].1 && points[2].1 >= 10.0);
}

#[test]
fn wide_ranges_are_logarithmic_and_say_so() {
    let log = "log</text>";
    assert!(shown(chart(vec![(1, 0.001), (2, 1.0)])).contains(log));
    assert!(!shown(chart(vec![(1, 0.1), (2, 1.0)])).contains(log));
    assert!(!shown(chart(vec![(1, 0.0), (2, 1000.0)])).contains(log));
}

#[test]
fn a_clip_is_embedded_with_its_verdict() {
    let one = |verdict| CaptionedClip::new(gif(3, 2), "a red circle", verdict).unwrap();
    let clips =
        [one(Verdict::Right), one(Verdict::Wrong).with_note("saw blue"), one(Verdict::Unjudged)];
    let html = Page::new("t").clips("Clips", clips).html();
    // "GIF89a", width and height, in groups of six bits.
    assert_eq!(html.matches("src=\"data:image/gif;base64,R0lGODlhAwACA").count(), 3);
    assert_eq!(html.matches("width=\"3\" height=\"2\"").count(), 3);
    assert!(html.contains("clip right\">") && html.contains("<b>✓ right</b> a red circle"));
    assert!(html.contains("clip wrong\">") && html.contains("<b>✗ wrong</b> a red circle"));
    assert!(html.contains("<small>saw blue</small>"));
    let error =
        CaptionedClip::new(b"\x89PNG\r\n\x1a\n 1234".to_vec(), "a", Verdict::Right).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the clip \"a\" is neither a GIF nor a PNG; write it as `.gif` or `.png`"
    );
    assert!(CaptionedClip::new(b"GIF89a".to_vec(), "cut", Verdict::Right).is_err());
}

#[test]
fn a_score_has_its_share() {
    let scores = [(88, 96, "91.7 %"), (0, 0, "0.0 %"), (4, 4, "100.0 %")];
    for (right, of, share) in scores {
        let html = Page::new("t").scores("", [Score { name: "all".into(), right, of }]).html();
        assert!(html.contains(&format!(">{share}</td>")), "{html}");
        assert!(html.contains(&format!(">{right} of {of}</td>")));
    }
}

#[test]
fn a_table_is_as_wide_as_its_head() {
    let rows = [vec!["a".to_owned()], vec!["b".into(), "2".into(), "3".into()]];
    let html = Page::new("t").table("", &["name", "n"], &rows).html();
    assert!(html.contains("<tr><td>a</td><td></td></tr>"));
    assert!(html.contains("<tr><td>b</td><td class=\"number\">2</td></tr>"));
}

#[test]
fn a_history_has_a_chart_for_everything_it_holds() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::new(folder.path());
    tell(&mut journal, &[report(1), report(2)]);
    journal.record(2, &[("validation/score", 0.5)]).unwrap();
    let html = Page::new("t").history("Curves", &history(folder.path()).unwrap()).html();
    let titles: Vec<_> =
        html.split("<h3>").skip(1).map(|rest| rest.split("</h3>").next().unwrap()).collect();
    let want = [
        "validation/score",
        "Loss",
        "Loss by noise level",
        "Learning rate",
        "Gradient norm, before clipping",
        "Tokens per second",
    ];
    assert_eq!(titles, want);
}

#[test]
fn a_page_is_written_whole_and_nothing_is_left_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.html");
    for title in ["one", "two"] {
        let page = Page::new(title);
        page.write(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), page.html());
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    let error = Page::new("t").write(folder.path().join("none").join("report.html")).unwrap_err();
    assert!(error.to_string().starts_with("cannot write "), "{error}");
    fs::create_dir(folder.path().join("taken")).unwrap();
    assert!(Page::new("t").write(folder.path().join("taken")).is_err());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}
