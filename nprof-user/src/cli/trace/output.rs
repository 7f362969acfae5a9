//! Where the results of `nprof trace` go: a live table on a terminal, documents or a table elsewhere.

use std::io::{self, IsTerminal as _, Write as _};

use clap::ValueEnum;

use super::super::terminal;
use crate::aggregate::merge_losses;
use crate::model::Snapshot;
use crate::render::live::LiveView;
use crate::render::{View, csv, json, table};

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum Format {
    /// For people
    #[default]
    Table,
    /// One document on one line; with --interval one each time
    Json,
    /// One line per method, with a header
    Csv,
}

/// The output of one run.
#[derive(Debug)]
pub(super) struct Output {
    format: Format,
    view: View,
    /// Whether something is printed before the end.
    repeats: bool,
    live: Option<LiveView>,
}

impl Output {
    /// For results in this format; `repeats` if the user asked for results in between.
    pub(super) fn new(format: Format, view: View, repeats: bool) -> Self {
        let live = format == Format::Table && io::stdout().is_terminal();
        Self { format, view, repeats, live: live.then(|| LiveView::new(view)) }
    }

    /// Whether [`Self::update`] prints anything.
    pub(super) fn is_live(&self) -> bool {
        self.repeats || self.live.is_some()
    }

    /// Prints what was measured so far.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn update(&mut self, jvms: &[Snapshot]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match &mut self.live {
            Some(live) => live.draw(jvms, terminal::size(), &mut out)?,
            None => self.print(jvms, &mut out)?,
        }
        out.flush()
    }

    /// Prints what was measured in all.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn finish(self, jvms: &[Snapshot]) -> io::Result<()> {
        if self.format == Format::Csv {
            // The format has no place for them.
            let losses = merge_losses(jvms.iter().map(|jvm| &jvm.losses));
            crate::render::losses(&losses).into_iter().for_each(terminal::say);
        }
        let mut out = io::stdout().lock();
        match self.live {
            Some(live) => live.finish(jvms, terminal::size(), &mut out)?,
            None => self.print(jvms, &mut out)?,
        }
        out.flush()
    }

    fn print(&self, jvms: &[Snapshot], out: &mut impl io::Write) -> io::Result<()> {
        match self.format {
            Format::Table => table::table(jvms, self.view, terminal::stdout_screen(), out),
            Format::Json => json::json(jvms, self.view, out),
            Format::Csv => csv::csv(jvms, self.view, out),
        }
    }
}
