//! The table of families and pairs of layouts in `docs/parallel.md` is what plans say.

use comm::{Axis, MeshShape};
use engine::Request;
use parallel::{Layout, Plan, Workload};

use crate::asked::{Model, models, requests};

/// Axes by their flags, in the order of the table.
const AXES: [(&str, Axis); 6] = [
    ("data", Axis::Data),
    ("cfg", Axis::Cfg),
    ("ulysses", Axis::Ulysses),
    ("ring", Axis::Ring),
    ("tensor", Axis::Tensor),
    ("pipefusion", Axis::Pipeline),
];

/// What a plan says of two ranks along each of two axes.
fn cell(workload: &Workload, [first, second]: [Axis; 2]) -> String {
    let mesh = MeshShape::default().with(first, 2).with(second, 2);
    match Plan::new(&Layout::new(mesh.size().unwrap(), mesh), workload) {
        Ok(_) => "yes".to_owned(),
        Err(refusal) => refusal.to_string(),
    }
}

/// The same beside two ranks that decode.
fn strips(workload: &Workload, axis: Axis) -> String {
    let mesh = MeshShape::default().with(axis, 2);
    let layout = Layout { vae_ranks: 2, ..Layout::new(2, mesh) };
    match Plan::new(&layout, workload) {
        Ok(_) => "yes".to_owned(),
        // Replicas have one rank each then, as the page says.
        Err(refusal) if axis == Axis::Data && refusal.axis == "vae-ranks" => "no".to_owned(),
        Err(refusal) => refusal.to_string(),
    }
}

fn rows(model: &Model) -> Vec<String> {
    let (_, request) = requests(&model.description).swap_remove(0);
    let request = Request { steps: Some(4), ..request };
    let workload = model.pipeline.workload(&request).unwrap();
    let mut all = Vec::new();
    for (at, (name, axis)) in AXES.iter().enumerate() {
        for (other_name, other) in &AXES[at + 1..] {
            all.push(format!("{name} x {other_name}: {}", cell(&workload, [*axis, *other])));
        }
        all.push(format!("{name} x vae-ranks: {}", strips(&workload, *axis)));
    }
    all
}

/// Every pair of every model, as one line of the page for those that all of them answer alike.
#[test]
fn the_page_says_what_plans_say() {
    let models = models();
    let all: Vec<(String, Vec<String>)> =
        models.iter().map(|model| (model.name.clone(), rows(model))).collect();
    let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/parallel.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut want = format!("| pair of two ranks each | {} |\n|---|", names.join(" | "));
    want += &"---|".repeat(names.len());
    want.push('\n');
    for at in 0..all[0].1.len() {
        let pair = all[0].1[at].split(": ").next().unwrap();
        let cells: Vec<&str> =
            all.iter().map(|(_, rows)| rows[at].split_once(": ").unwrap().1).collect();
        want += &format!("| {pair} | {} |\n", cells.join(" | "));
    }
    assert!(page.contains(&want), "docs/parallel.md should hold this table:\n{want}");
}
