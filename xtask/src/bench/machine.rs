//! What the numbers were measured on, and when.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

/// The instruction sets that matter to products, as Linux calls them and as people do.
const SETS: [(&str, &str); 6] = [
    ("avx2", "AVX2"),
    ("avx512f", "AVX-512"),
    ("avx512_vnni", "AVX512-VNNI"),
    ("avx512_bf16", "AVX512-BF16"),
    ("amx_tile", "AMX"),
    ("asimd", "NEON"),
];

/// The kind of machine: the processor's name, which says little of a virtual machine, and its
/// instruction sets. Numbers of one kind are not put in the place of another's.
pub(super) fn kind() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = model_name(&text).unwrap_or_else(|| std::env::consts::ARCH.to_string());
    match sets(&text)[..] {
        [] => name,
        ref sets => format!("{name} with {}", sets.join(", ")),
    }
}

/// The same and the number of threads used.
pub(super) fn describe(threads: usize) -> String {
    let plural = if threads == 1 { "" } else { "s" };
    format!("{}; {threads} thread{plural}", kind())
}

fn sets(cpuinfo: &str) -> Vec<&'static str> {
    let line = |line: &&str| line.starts_with("flags") || line.starts_with("Features");
    let line = cpuinfo.lines().find(line).unwrap_or_default();
    let has = |flag: &str| line.split_whitespace().any(|own| own == flag);
    SETS.iter().filter(|(flag, _)| has(flag)).map(|(_, name)| *name).collect()
}

fn model_name(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

/// Today in UTC, as year-month-day.
pub(super) fn today() -> Result<String> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    Ok(date(since.as_secs() / 86_400))
}

/// The date that lies `days` after 1970-01-01.
fn date(days: u64) -> String {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut rest = days;
    let mut year = 1970;
    while rest >= 365 + u64::from(is_leap(year)) {
        rest -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if rest < length {
            break;
        }
        rest -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", rest + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        let dates = [0, 58, 59, 364, 365, 11_016, 11_017, 20_513, 20_514].map(date);
        let expected = [
            "1970-01-01",
            "1970-02-28",
            "1970-03-01",
            "1970-12-31",
            "1971-01-01",
            "2000-02-29",
            "2000-03-01",
            "2026-03-01",
            "2026-03-02",
        ];
        assert_eq!(dates, expected);
    }

    #[test]
    fn the_processor_is_named() {
        let text = "processor\t: 0\nmodel name\t: Some CPU 9000\nmodel name\t: Other\n";
        assert_eq!(model_name(text).as_deref(), Some("Some CPU 9000"));
        assert_eq!(model_name("processor : 0"), None);
    }

    #[test]
    fn instruction_sets_are_named() {
        let text = "flags\t\t: fpu avx2 avx512f avx512_bf16\nother: amx_tile\n";
        assert_eq!(sets(text), ["AVX2", "AVX-512", "AVX512-BF16"]);
        assert_eq!(sets("Features\t: fp asimd\n"), ["NEON"]);
        assert!(sets("flags : fpu avx").is_empty());
    }
}
