//! Colours, only where a terminal shows them.

use crate::sim::driver::Actor;

/// Whether and how text is coloured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Palette {
    colours: bool,
}

impl Palette {
    /// No colours.
    pub(super) const PLAIN: Self = Self { colours: false };

    /// With colours or without.
    pub(super) fn new(colours: bool) -> Self {
        Self { colours }
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colours { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// Headings.
    pub(super) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// What matters less.
    pub(super) fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    /// What went well.
    pub(super) fn good(self, text: &str) -> String {
        self.paint("32", text)
    }

    /// What is broken.
    pub(super) fn bad(self, text: &str) -> String {
        self.paint("1;31", text)
    }

    /// attachd itself, and what one types.
    pub(super) fn attachd(self, text: &str) -> String {
        self.paint("1;36", text)
    }

    /// Who did something.
    pub(super) fn actor(self, actor: &Actor, text: &str) -> String {
        match actor {
            Actor::Attachd(_) => self.attachd(text),
            Actor::Ec2 => self.paint("33", text),
            Actor::Kubelet(_) => self.paint("32", text),
            Actor::ControlPlane(_) => self.paint("34", text),
            Actor::Person => self.paint("35", text),
            Actor::Fault => self.bad(text),
            Actor::Simulation => self.dim(text),
            Actor::Upstream => self.paint("1;33", text),
        }
    }
}
