//! From the figures of all rounds to a table, a JSON file and the page for people.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use countersign_bench::stats::median;
use serde::Serialize;

use crate::figure::{Figure, Point};
use crate::machine::{Conditions, Machine};
use crate::targets::{Goal, Target};

/// What a report is about.
pub(crate) struct Subject {
    /// The page's title.
    pub(crate) title: &'static str,
    /// The command that writes it.
    pub(crate) command: &'static str,
    /// What stands on the page before the figures, and behind the machine.
    pub(crate) intro: &'static str,
    pub(crate) setting: &'static str,
    pub(crate) targets: &'static [Target],
    /// Written by people: why a target is not met, what peers reach, how to repeat.
    pub(crate) notes: &'static str,
    /// Crates whose versions count.
    pub(crate) crates: &'static [&'static str],
}

/// All that was measured.
#[derive(Serialize)]
pub(crate) struct Report {
    #[serde(skip)]
    subject: &'static Subject,
    machine: Machine,
    quick: bool,
    planned_rounds: usize,
    rounds: Vec<Round>,
    targets: Vec<Row>,
    /// Of engines that were to be measured beside ours and could not be.
    absent: Vec<String>,
}

#[derive(Serialize)]
struct Round {
    conditions: Conditions,
    figures: Vec<Figure>,
    beside: Vec<Beside>,
}

/// A measurement that is no target: what, and of whom.
#[derive(Debug, Serialize)]
pub(crate) struct Beside {
    pub(crate) what: String,
    pub(crate) engine: &'static str,
    pub(crate) point: Point,
    pub(crate) unit: &'static str,
}

/// The medians over the rounds.
#[derive(Clone, Serialize)]
struct Row {
    id: &'static str,
    what: &'static str,
    unit: &'static str,
    product: Point,
    against: &'static str,
    bound: Option<Point>,
    value: f64,
    value_of: &'static str,
    /// The best and the worst round.
    lowest: f64,
    highest: f64,
    least_code: Option<f64>,
    commit: f64,
    stretch: Option<f64>,
    #[serde(skip)]
    goal: Goal,
    met: bool,
}

impl Report {
    pub(crate) fn begin(subject: &'static Subject, planned_rounds: usize, quick: bool) -> Result<Self> {
        let machine = Machine::here(subject.crates)?;
        let (rounds, targets, absent) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { subject, machine, quick, planned_rounds, rounds, targets, absent })
    }

    /// Says that an engine is not measured, and why.
    pub(crate) fn absent(&mut self, why: String) {
        self.absent.push(why);
    }

    pub(crate) fn add(&mut self, conditions: Conditions, figures: Vec<Figure>, beside: Vec<Beside>) {
        self.rounds.push(Round { conditions, figures, beside });
        self.targets = self.subject.targets.iter().filter_map(|target| self.row(target)).collect();
    }

    fn row(&self, target: &Target) -> Option<Row> {
        let figures: Vec<&Figure> = self
            .rounds
            .iter()
            .flat_map(|round| &round.figures)
            .filter(|figure| figure.id == target.id)
            .collect();
        let first = figures.first()?;
        let of = |get: &dyn Fn(&Figure) -> Option<f64>| {
            let known: Vec<f64> = figures.iter().filter_map(|figure| get(figure)).collect();
            (!known.is_empty()).then(|| median(known))
        };
        let values = || figures.iter().map(|figure| figure.value);
        let value = median(values());
        Some(Row {
            id: target.id,
            what: target.what,
            unit: target.unit,
            product: Point {
                middle: median(figures.iter().map(|figure| figure.product.middle)),
                tail: of(&|figure| figure.product.tail),
            },
            against: target.against,
            bound: first.bound.map(|_| Point {
                middle: of(&|figure| Some(figure.bound?.middle)).unwrap_or_default(),
                tail: of(&|figure| figure.bound?.tail),
            }),
            value,
            value_of: target.value,
            lowest: values().fold(f64::INFINITY, f64::min),
            highest: values().fold(f64::NEG_INFINITY, f64::max),
            least_code: of(&|figure| figure.bound_value),
            commit: target.commit,
            stretch: target.stretch,
            goal: target.goal,
            met: target.is_met(value, target.commit),
        })
    }

    /// For the terminal.
    pub(crate) fn table(&self) -> String {
        let mut out = String::new();
        let rows: Vec<[String; 8]> = self.targets.iter().map(Row::cells).collect();
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.chain([HEAD[column].len()]).max().unwrap_or(0)
        };
        for cells in std::iter::once(HEAD.map(str::to_owned)).chain(rows.iter().cloned()) {
            for (column, cell) in cells.iter().enumerate() {
                let _ = write!(out, "{cell:<width$}  ", width = width(column));
            }
            out.truncate(out.trim_end().len());
            out.push('\n');
        }
        out
    }

    pub(crate) fn write_json(&self, path: &Path) -> Result<()> {
        fs::write(path, serde_json::to_string_pretty(self)?).with_context(|| path.display().to_string())
    }

    /// The page for people.
    pub(crate) fn write_page(&self, path: &Path) -> Result<()> {
        let notes = fs::read_to_string(self.subject.notes).context(self.subject.notes)?;
        fs::write(path, self.page(&notes)).with_context(|| path.display().to_string())
    }

    fn page(&self, notes: &str) -> String {
        let Machine { processors, processor, kernel, rustc, crates } = &self.machine;
        let Subject { title, command, intro, setting, notes: file, .. } = self.subject;
        let mut out = format!(
            "# {title}\n\nWritten by `cargo xtask bench {command}`; what people have to add stands in `{file}`.\n\n{intro}\n\n"
        );
        if self.quick {
            out.push_str("**A quick look: one short round. These figures say little.**\n\n");
        }
        let _ = writeln!(
            out,
            "{} of {} rounds; medians over the rounds. {processors} processors ({processor}), Linux {kernel}, {rustc}, {}. \
             {setting}\n",
            self.rounds.len(),
            self.planned_rounds,
            crates.join(", ")
        );
        out.push_str("| round | load average | fdatasync p50 / p99 us |\n| --- | --- | --- |\n");
        for Round { conditions: Conditions { at, load, sync }, .. } in &self.rounds {
            let _ = writeln!(out, "| {at} | {load:.2} | {:.0} / {:.0} |", sync.p50, sync.p99);
        }
        let _ = writeln!(out, "\n## Targets\n\n| {} |\n|{}", HEAD.join(" | "), " --- |".repeat(HEAD.len()));
        for row in &self.targets {
            let _ = writeln!(out, "| {} |", row.cells().join(" | "));
        }
        let missed: Vec<&Row> = self.targets.iter().filter(|row| !row.met).collect();
        out.push('\n');
        if missed.is_empty() {
            out.push_str("All are met.\n");
        } else {
            let ids: Vec<&str> = missed.iter().map(|row| row.id).collect();
            let _ = writeln!(out, "Not met: {}. The notes say why.", ids.join(", "));
        }
        out.push('\n');
        out.push_str(&self.beside());
        out.push_str(notes);
        out
    }

    /// What was measured beside the targets: a row for each thing, a column for each engine.
    pub(crate) fn beside(&self) -> String {
        let all = || self.rounds.iter().flat_map(|round| &round.beside);
        let mut engines: Vec<&str> = Vec::new();
        let mut rows: Vec<(&str, &str)> = Vec::new();
        for Beside { what, engine, unit, .. } in all() {
            if !engines.contains(engine) {
                engines.push(engine);
            }
            if !rows.contains(&(what.as_str(), *unit)) {
                rows.push((what, unit));
            }
        }
        if rows.is_empty() {
            return String::new();
        }
        let columns = " --- |".repeat(engines.len() + 1);
        let mut out = format!("## Side by side, p50 / p99\n\n|  | {} |\n|{columns}\n", engines.join(" | "));
        for (what, unit) in rows {
            let cell = |engine: &&str| {
                let points: Vec<Point> = all()
                    .filter(|beside| beside.what == what && beside.engine == *engine)
                    .map(|beside| beside.point)
                    .collect();
                if points.is_empty() {
                    return String::new();
                }
                let middle = number(median(points.iter().map(|point| point.middle)));
                let tails: Vec<f64> = points.iter().filter_map(|point| point.tail).collect();
                if tails.is_empty() { middle } else { format!("{middle} / {}", number(median(tails))) }
            };
            let cells: Vec<String> = engines.iter().map(cell).collect();
            let _ = writeln!(out, "| {what}, {unit} | {} |", cells.join(" | "));
        }
        for why in &self.absent {
            let _ = writeln!(out, "\nNot installed: {why}");
        }
        out.push('\n');
        out
    }
}

const HEAD: [&str; 8] =
    ["", "what", "product p50 / p99", "against", "bound p50 / p99", "value (rounds)", "least code", "target"];

impl Row {
    fn cells(&self) -> [String; 8] {
        let pair = |point: Point| match point.tail {
            Some(tail) => format!("{} / {}", number(point.middle), number(tail)),
            None => number(point.middle),
        };
        let unit = self.unit;
        let sign = match self.goal {
            Goal::AtLeast => ">=",
            Goal::AtMost => "<=",
        };
        let met = if self.met { "met" } else { "**not met**" };
        let stretch = self.stretch.map(|stretch| format!(" ({})", number(stretch))).unwrap_or_default();
        [
            self.id.to_owned(),
            self.what.to_owned(),
            format!("{} {unit}", pair(self.product)),
            self.against.to_owned(),
            self.bound.map(|bound| format!("{} {unit}", pair(bound))).unwrap_or_default(),
            format!(
                "{}{} ({}..{})",
                number(self.value),
                self.value_of,
                number(self.lowest),
                number(self.highest)
            ),
            self.least_code.map(number).unwrap_or_default(),
            format!("{sign} {}{stretch}: {met}", number(self.commit)),
        ]
    }
}

/// Three digits that mean something; large numbers as they are.
fn number(value: f64) -> String {
    let size = value.abs();
    let decimals = if value.fract() == 0.0 || size >= 100.0 {
        0
    } else if size >= 10.0 {
        1
    } else {
        2
    };
    let text = format!("{value:.decimals$}");
    let (whole, fraction) = text.split_once('.').map_or((text.as_str(), ""), |(whole, rest)| (whole, rest));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let dot = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{grouped}{dot}{fraction}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.254, "0.25"),
            (12.34, "12.3"),
            (27109.4, "27,109"),
            (-1234567.0, "-1,234,567"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
