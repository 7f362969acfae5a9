//! Bars: what a benchmark promises, and what it measured.

use std::fmt;

use anyhow::{Result, ensure};

/// Bars in the order in which they were measured. Shown as a Markdown table.
#[derive(Debug, Default)]
pub struct Bars(Vec<Bar>);

/// How a bar was met.
#[derive(Debug)]
struct Bar {
    name: String,
    measured: f64,
    limit: f64,
}

impl Bar {
    /// What is not a number meets nothing.
    fn is_met(&self) -> bool {
        self.measured <= self.limit
    }
}

impl Bars {
    /// Adds what was measured, and the most that it may be.
    pub fn add(&mut self, name: impl Into<String>, measured: f64, limit: f64) {
        self.0.push(Bar { name: name.into(), measured, limit });
    }

    /// Adds all of others.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Checks that none was missed.
    ///
    /// # Errors
    /// When one was.
    pub fn must_be_met(&self) -> Result<()> {
        let missed = self.0.iter().filter(|bar| !bar.is_met()).count();
        ensure!(missed == 0, "{missed} bars missed");
        Ok(())
    }
}

impl fmt::Display for Bars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## Bars\n\n| bar | limit | measured | |\n| --- | --- | --- | --- |")?;
        for bar in &self.0 {
            let met = if bar.is_met() { "met" } else { "MISSED" };
            writeln!(f, "| {} | {} | {:.3} | {met} |", bar.name, bar.limit, bar.measured)?;
        }
        Ok(())
    }
}

/// The middle of some numbers, the higher one of an even number; not a number if there are none.
#[must_use]
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a bar that is just reached is met, and one that is passed or was not measured is missed.
    #[test]
    fn missed_bars_are_seen() {
        let mut bars = Bars::default();
        bars.add("time, ms", 2.0, 2.0);
        assert!(bars.must_be_met().is_ok());
        bars.add("memory, MB", f64::NAN, 3.0);
        assert_eq!(bars.must_be_met().unwrap_err().to_string(), "1 bars missed");
        assert!(bars.to_string().ends_with("| time, ms | 2 | 2.000 | met |\n| memory, MB | 3 | NaN | MISSED |\n"));
    }

    /// Check that the middle does not depend on the order.
    #[test]
    fn the_middle() {
        assert_eq!(median([9.0, 1.0, 2.0]), 2.0);
        assert!(median([]).is_nan());
    }
}
