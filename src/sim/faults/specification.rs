//! A placement in one line: `world:fault@step,fault@step`, so that what failed can be run again by anybody.

use std::fmt;
use std::str::FromStr;

/// Which faults are put where in which small world.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Specification {
    /// The small world.
    pub world: String,
    /// Faults by their names in the catalogue, in the order of their steps.
    pub placed: Vec<Placed>,
}

/// One fault, put after a step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placed {
    /// The step after which it comes; 0: before the first.
    pub step: u64,
    /// Its name in the catalogue.
    pub fault: String,
}

/// Why a text is not a specification.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a placement: {expected}")]
pub struct SpecificationError {
    text: String,
    expected: &'static str,
}

impl Specification {
    /// The world as it runs without faults.
    pub fn bare(world: &str) -> Self {
        Self { world: world.to_owned(), placed: Vec::new() }
    }
}

impl fmt::Display for Specification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.world)?;
        for (index, placed) in self.placed.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}@{}", placed.fault, placed.step)?;
        }
        Ok(())
    }
}

impl FromStr for Specification {
    type Err = SpecificationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = |expected| SpecificationError { text: text.to_owned(), expected };
        let (world, rest) = text.split_once(':').ok_or_else(|| wrong("write world:fault@step,fault@step"))?;
        let mut placed = Vec::new();
        for part in rest.split(',').filter(|part| !part.is_empty()) {
            let (fault, step) = part.split_once('@').ok_or_else(|| wrong("each fault needs its step: fault@step"))?;
            let step = step.parse().map_err(|_| wrong("a step is a whole number"))?;
            placed.push(Placed { step, fault: fault.to_owned() });
        }
        placed.sort_by_key(|placed| placed.step);
        Ok(Self { world: world.to_owned(), placed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_specification_reads_back_what_it_writes() {
        let text = "move:restart-kubelet-n1@12,lose-reply-detach@40";
        let read: Specification = text.parse().unwrap();
        assert_eq!(read.to_string(), text);
        assert_eq!(read.placed[1], Placed { step: 40, fault: "lose-reply-detach".to_owned() });
        assert_eq!("move:".parse::<Specification>().unwrap().placed, []);
    }

    #[test]
    fn what_is_none_says_what_it_should_be() {
        for text in ["move", "move:taint-n1", "move:taint-n1@x"] {
            let error = text.parse::<Specification>().unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }
}
