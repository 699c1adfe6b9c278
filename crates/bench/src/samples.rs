//! Many measurements of one thing, and what is said of them.

use std::time::Duration;

/// Spans, in seconds, in order of size.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn of(mut numbers: Vec<f64>) -> Self {
        numbers.sort_by(f64::total_cmp);
        Self(numbers)
    }

    pub(crate) fn add(&mut self, span: Duration) {
        self.add_number(span.as_secs_f64());
    }

    pub(crate) fn add_number(&mut self, number: f64) {
        let at = self.0.partition_point(|other| *other < number);
        self.0.insert(at, number);
    }

    pub(crate) fn extend(&mut self, others: &Self) {
        others.0.iter().for_each(|number| self.add_number(*number));
    }

    pub(crate) fn median(&self) -> f64 {
        self.at(0.5)
    }

    pub(crate) fn p99(&self) -> f64 {
        self.at(0.99)
    }

    pub(crate) fn max(&self) -> f64 {
        self.at(1.0)
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The nearest rank; nothing measured is no number.
    fn at(&self, part: f64) -> f64 {
        let rank = (part * self.0.len() as f64).ceil() as usize;
        self.0.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_the_sorted_samples() {
        let mut samples = Samples::default();
        for number in (1..=100).rev() {
            samples.add_number(f64::from(number));
        }

        assert_eq!((samples.median(), samples.p99(), samples.max()), (50.0, 99.0, 100.0));
        assert!(Samples::default().median().is_nan());
    }
}
