//! What the numbers were measured on, and when.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

/// The processor's name and the number of threads used.
pub(super) fn describe(threads: usize) -> String {
    let name = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| model_name(&text));
    let name = name.unwrap_or_else(|| std::env::consts::ARCH.to_string());
    let plural = if threads == 1 { "" } else { "s" };
    format!("{name}, {threads} thread{plural}")
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
}
