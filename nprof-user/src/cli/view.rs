//! How the rows of a table are shown: the options that `trace` and `report` have for it.

use std::ffi::OsStr;

use anyhow::bail;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Args, Command};

use crate::render::{By, Order, Scope, View};

/// Which rows, in which order.
#[derive(Debug, Clone, Args)]
pub(super) struct ViewArgs {
    /// The column that rows are ordered by; `program.NAME` for what programs of yours have counted [default: on-cpu, where it is
    /// measured; else total]
    #[arg(long, value_name = "COLUMN", value_parser = OrderParser)]
    sort: Option<Order>,
    /// Show the first N rows of the final table, and what the others add up to
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    top: Option<u32>,
    /// Add the rows up by this
    #[arg(long, value_name = "WHAT", value_parser = one_of(&By::ALL))]
    by: Option<By>,
}

impl ViewArgs {
    /// The view of JVMs in this scope.
    pub(super) fn of(&self, scope: Scope) -> View {
        let top = self.top.and_then(|top| usize::try_from(top).ok());
        View { scope, order: self.sort.unwrap_or_default(), by: self.by, top }
    }

    /// The order that was asked for, if one was.
    pub(super) fn sort(&self) -> Option<Order> {
        self.sort
    }

    /// What rows are added up by, which only tables show.
    pub(super) fn by(&self) -> Option<By> {
        self.by
    }

    /// Refuses an order that groups do not have.
    ///
    /// # Errors
    /// If rows are added up and ordered by another column.
    pub(super) fn check_order_of_groups(&self) -> anyhow::Result<()> {
        match self.sort {
            Some(order) if self.by.is_some() && !order.is_of_groups() => {
                bail!(
                    "`--by` has the columns calls, calls-error, functions, on-cpu, error, self and name: `--sort` by one of them"
                )
            }
            Some(order) if self.by.is_none() && order.is_of_groups_alone() => {
                bail!("`--sort {}` is for rows that are added up: say `--by`, too", order.word())
            }
            _ => Ok(()),
        }
    }
}

/// Reads the word for a column.
#[derive(Debug, Clone)]
struct OrderParser;

impl TypedValueParser for OrderParser {
    type Value = Order;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Order, clap::Error> {
        if let Some(order) = value.to_str().and_then(Order::of) {
            return Ok(order);
        }
        // Says which there are.
        let words = PossibleValuesParser::new(Order::words());
        words.try_map(|word| Order::of(&word).ok_or("no such word")).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Order::words().map(PossibleValue::new)))
    }
}

/// Reads one of these words.
fn one_of<T: Copy + Send + Sync + 'static>(
    words: &'static [(T, &'static str)],
) -> impl TypedValueParser<Value = T> + use<T> {
    let known = PossibleValuesParser::new(words.iter().map(|(_, word)| *word));
    known.try_map(|word| words.iter().find(|(_, known)| *known == word).map(|(value, _)| *value).ok_or("no such word"))
}
