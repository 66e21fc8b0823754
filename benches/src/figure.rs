//! What one round says about one target.

use serde::Serialize;

/// A figure of one round.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Figure {
    /// The target's id.
    pub(crate) id: &'static str,
    /// What was measured of the product, in the target's unit.
    pub(crate) product: Point,
    /// What was measured of the bound in the same minute.
    pub(crate) bound: Option<Point>,
    /// What the target speaks of: most often product through bound.
    pub(crate) value: f64,
    /// What the least code that does the job reaches by the same count.
    pub(crate) bound_value: Option<f64>,
}

/// Middle and tail of a measurement.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Point {
    pub(crate) middle: f64,
    pub(crate) tail: Option<f64>,
}

impl Point {
    pub(crate) const fn of(middle: f64) -> Self {
        Self { middle, tail: None }
    }
}

impl From<countersign_bench::stats::Summary> for Point {
    fn from(summary: countersign_bench::stats::Summary) -> Self {
        Self { middle: summary.p50, tail: Some(summary.p99) }
    }
}

impl Figure {
    /// One that stands for itself.
    pub(crate) const fn of(id: &'static str, value: f64) -> Self {
        Self { id, product: Point::of(value), bound: None, value, bound_value: None }
    }

    /// Product through bound.
    pub(crate) fn ratio(id: &'static str, product: impl Into<Point>, bound: impl Into<Point>) -> Self {
        let (product, bound) = (product.into(), bound.into());
        let value = product.middle / bound.middle;
        Self { id, product, bound: Some(bound), value, bound_value: None }
    }

    /// With what the least code reaches.
    pub(crate) const fn least(self, bound_value: f64) -> Self {
        Self { bound_value: Some(bound_value), ..self }
    }
}
