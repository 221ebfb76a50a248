//! The table of docs/training.md says which layouts are tested, and nothing else does.

use std::fmt::Write;
use std::path::Path;

use super::NAMES;
use super::cases::{self, ADAMW, COLUMNS, Case, Law, MUON, SGD};

/// Where the table begins and ends in the page.
const MARKS: [&str; 2] = ["<!-- what is tested on ranks -->", "<!-- end of what is tested -->"];

/// What a law says, in the order of the tables.
const LAWS: [(Law, &str); 4] = [
    (Law::AsOne, "On threads, against one rank"),
    (Law::AsCopies, "On threads, to the bit as whole copies"),
    (Law::AsThreads, "On processes, to the bit as threads and against one rank"),
    (Law::GoesOn, "From a checkpoint of four ranks, against one rank that never stopped"),
];

/// The rows of a law: numbers of ranks by column.
fn rows(law: Law) -> String {
    let mut all = String::new();
    for (what, name) in NAMES.into_iter().enumerate() {
        for (optimizer, told) in [(SGD, "SGD"), (ADAMW, "AdamW"), (MUON, "Muon")] {
            let own: Vec<Case> = cases::of(law)
                .filter(|case| (case.what, case.optimizer) == (what, optimizer))
                .collect();
            if own.is_empty() {
                continue;
            }
            let cells = COLUMNS.map(|column| {
                let of_column = own.iter().filter(|case| case.layout.column() == column);
                let mut ranks: Vec<usize> = of_column.map(|case| case.layout.ranks()).collect();
                ranks.sort_unstable();
                ranks.dedup();
                ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
            });
            writeln!(all, "| {name} | {told} | {} |", cells.join(" | ")).unwrap();
        }
    }
    all
}

/// All tables as the page has them.
fn tables() -> String {
    let mut all = String::new();
    for (law, told) in LAWS {
        let columns = COLUMNS.join(" | ");
        writeln!(all, "\n{told}:\n\n| numbers of ranks | | {columns} |").unwrap();
        writeln!(all, "|{}\n{}", "---|".repeat(2 + COLUMNS.len()), rows(law).trim_end()).unwrap();
    }
    all
}

#[test]
fn the_page_tells_what_is_tested() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/training.md");
    let text = std::fs::read_to_string(page).unwrap();
    let (_, rest) = text.split_once(MARKS[0]).expect("the page marks where the table begins");
    let (told, _) = rest.split_once(MARKS[1]).expect("the page marks where the table ends");
    let want = tables();
    assert!(told.trim() == want.trim(), "docs/training.md should say, between its marks:\n{want}");
}
