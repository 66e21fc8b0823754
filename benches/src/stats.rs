//! Summing up: medians and the slow tail.

use serde::{Deserialize, Serialize};

/// The middle and the tail of some samples, in the unit of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// How many samples.
    pub count: usize,
    /// Half of them are below.
    pub p50: f64,
    /// All but one in a hundred are below.
    pub p99: f64,
    /// The worst.
    pub max: f64,
}

/// Sums up samples; all zero without any.
pub fn summary(mut samples: Vec<f64>) -> Summary {
    samples.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let index = (samples.len() as f64 * share) as usize;
        samples.get(index.min(samples.len().saturating_sub(1))).copied().unwrap_or_default()
    };
    Summary { count: samples.len(), p50: at(0.5), p99: at(0.99), max: at(1.0) }
}

/// The middle of some figures, between the two in the middle of an even number; zero without any.
pub fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    let at = |index: usize| figures.get(index).copied().unwrap_or_default();
    (at(figures.len() / 2) + at(figures.len().saturating_sub(1) / 2)) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_tail() {
        let all = summary((1..=100).rev().map(f64::from).collect());
        assert_eq!((all.count, all.p50, all.p99, all.max), (100, 51.0, 100.0, 100.0));
        assert_eq!(summary(vec![7.0]), Summary { count: 1, p50: 7.0, p99: 7.0, max: 7.0 });
        assert_eq!(summary(Vec::new()).p50, 0.0);
        assert_eq!((median([3.0, 1.0, 2.0]), median([3.0, 1.0])), (2.0, 2.0));
    }
}
