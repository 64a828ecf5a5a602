//! Median and lowest fraction of the copy bandwidth for each kind of case.

use super::{Model, Row};
use std::fmt;

/// Cases of one operator, layout, element type and model.
pub struct Group<'a> {
    pub op: &'a str,
    pub format: &'a str,
    pub dtype: &'a str,
    /// The model's multiple of n.
    pub times: u64,
    pub rows: Vec<&'a Row>,
    /// None if no row has a fraction.
    pub fractions: Option<Fractions<'a>>,
}

/// Fractions of the copy bandwidth under the plain model.
pub struct Fractions<'a> {
    pub median: f64,
    pub geometric_mean: f64,
    /// The geometric mean relative to the best copy by 32-bit words; none if that is unknown.
    pub of_portable: Option<f64>,
    /// The geometric mean by what has to be moved.
    pub of_limit: Option<f64>,
    pub lowest: (f64, &'a Row),
}

/// The groups, in the order of their first cases. Small cases, where latency counts, are left out unless there are no
/// others.
pub fn summary(rows: &[Row]) -> Vec<Group<'_>> {
    let mut large: Vec<&Row> = rows.iter().filter(|row| !row.is_small()).collect();
    if large.is_empty() {
        large = rows.iter().collect();
    }
    let kinds = distinct(
        large
            .iter()
            .map(|row| (row.op.as_str(), row.format(), row.dtype.as_str())),
    );
    let with_models = kinds
        .into_iter()
        .flat_map(|kind| Model::ALL.map(|times| (kind, times)));
    with_models
        .map(|((op, format, dtype), times)| {
            let same = |row: &&&Row| row.op == op && row.format() == format && row.dtype == dtype;
            let plain = |row: &&&Row| row.models.first().is_some_and(|m| m.times == times);
            let of_kind = large.iter().filter(same).filter(plain);
            let rows: Vec<&Row> = of_kind.copied().collect();
            Group {
                op,
                format,
                dtype,
                times,
                fractions: Fractions::of(&rows),
                rows,
            }
        })
        .filter(|group| !group.rows.is_empty())
        .collect()
}

impl<'a> Fractions<'a> {
    fn of(rows: &[&'a Row]) -> Option<Self> {
        let fractions: Vec<(f64, &Row)> = rows
            .iter()
            .filter_map(|row| Some((row.fraction()?, *row)))
            .collect();
        let lowest = fractions.iter().min_by(|(a, _), (b, _)| a.total_cmp(b))?;
        let values: Vec<f64> = fractions.iter().map(|(fraction, _)| *fraction).collect();
        let of_portable = |&(fraction, row): &(f64, &Row)| {
            Some(fraction * row.copy_gb_per_s? / row.portable_copy_gb_per_s?)
        };
        let of_portable: Option<Vec<f64>> = fractions.iter().map(of_portable).collect();
        let of_limit: Option<Vec<f64>> = rows.iter().map(|row| row.fraction_of_limit()).collect();
        Some(Self {
            median: median(&values),
            geometric_mean: geometric_mean(values.iter().copied()),
            of_portable: of_portable.map(|values| geometric_mean(values.into_iter())),
            of_limit: of_limit.map(|values| geometric_mean(values.into_iter())),
            lowest: *lowest,
        })
    }
}

impl fmt::Display for Group<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.rows.len();
        write!(f, "{} {} {}: ", self.op, self.format, self.dtype)?;
        let Some(fractions) = &self.fractions else {
            return write!(f, "{count} cases without a copy bandwidth");
        };
        let (lowest, row) = fractions.lowest;
        write!(
            f,
            "{:.2} of copy bandwidth at {}n (geometric mean of {count}; median {:.2}), lowest {lowest:.2}: {}",
            fractions.geometric_mean, self.times, fractions.median, row.shape,
        )?;
        if let Some(of_limit) = fractions.of_limit {
            write!(f, "; {of_limit:.2} by the limit")?;
        }
        match fractions.of_portable {
            Some(of_portable) => write!(f, "; {of_portable:.2} of a copy by 32-bit words"),
            None => Ok(()),
        }
    }
}

/// Each value once, in the order in which they first come.
pub fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for value in values {
        if !distinct.contains(&value) {
            distinct.push(value);
        }
    }
    distinct
}

pub fn geometric_mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    (values.map(f64::ln).sum::<f64>() / count).exp()
}

/// The median; NaN if there are no values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |i: usize| sorted.get(i).copied().unwrap_or(f64::NAN);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => at(n / 2),
        n => (at(n / 2 - 1) + at(n / 2)) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_by_operator_layout_and_type() {
        let row = |number, format: &str, set: &str| Row {
            data_format: Some(format.to_owned()),
            set: set.to_owned(),
            ..Row::example(number)
        };
        let rows = [
            row(4.0, "NCX", "gpu"),
            row(1.0, "NXC", "gpu"),
            row(5.0, "NCX", "gpu"),
            row(1.5, "NCX", "gpu"),
            row(0.1, "NCX", "small"),
        ];
        let groups = summary(&rows);
        let found: Vec<_> = groups
            .iter()
            .map(|group| {
                let fractions = group.fractions.as_ref().map(|f| (f.median, f.lowest.0));
                (group.format, group.rows.len(), fractions)
            })
            .collect();
        let want = [("NCX", 3, Some((0.8, 0.3))), ("NXC", 1, Some((0.2, 0.2)))];
        assert_eq!(found, want);
        let words: Vec<String> = groups.iter().map(Group::to_string).collect();
        assert!(words[0].contains("; 1.04 by the limit"), "{words:?}");
        assert_eq!(summary(&rows[4..]).len(), 1);
    }

    #[test]
    fn medians() {
        assert!(median(&[]).is_nan());
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
