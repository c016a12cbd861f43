//! Owns the fuel of one evaluation. Knows costs, not what is being done.

use super::bounds::FUEL;

/// Fuel is counted in small change, so that a long string costs more than a short one without rounding up.
const UNIT: u64 = 256;

/// Visiting an element of an array or object costs what this many bytes do.
const ELEMENT: u64 = 16;

/// There is none left.
#[derive(Debug, PartialEq)]
pub(super) struct Dry;

#[derive(Debug)]
pub(super) struct Meter {
    left: u64,
}

impl Meter {
    pub fn full() -> Self {
        Meter { left: FUEL * UNIT }
    }

    fn spend(&mut self, cost: u64) -> Result<(), Dry> {
        self.left = self.left.checked_sub(cost).ok_or(Dry)?;
        Ok(())
    }

    /// One node of the tree.
    pub fn node(&mut self) -> Result<(), Dry> {
        self.spend(UNIT)
    }

    /// Reading or writing this much text: 256 bytes for one unit.
    pub fn bytes(&mut self, n: usize) -> Result<(), Dry> {
        self.spend(n as u64)
    }

    /// Looking at this many values.
    pub fn elements(&mut self, n: usize) -> Result<(), Dry> {
        self.spend(ELEMENT.saturating_mul(n as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_exactly_the_fuel() {
        let mut meter = Meter::full();
        for _ in 0..FUEL - 1 {
            meter.node().unwrap();
        }
        meter.bytes(255).unwrap();
        assert_eq!(meter.bytes(2), Err(Dry));
        meter.bytes(1).unwrap();
        assert_eq!(meter.node(), Err(Dry));
    }
}
