//! Owns the fuel of one evaluation. Knows costs, but not the operations that they pay for.

use super::bounds::FUEL;

/// Fractions per unit of fuel, so that a long string costs more than a short one without rounding up.
const UNIT: u64 = 256;

/// Cost of visiting an element of an array or object, in bytes.
const ELEMENT: u64 = 16;

/// No fuel is left.
#[derive(Debug, PartialEq)]
pub(super) struct FuelExhausted;

#[derive(Debug)]
pub(super) struct FuelMeter {
    left: u64,
}

impl FuelMeter {
    pub fn new() -> Self {
        FuelMeter { left: FUEL * UNIT }
    }

    fn spend(&mut self, cost: u64) -> Result<(), FuelExhausted> {
        self.left = self.left.checked_sub(cost).ok_or(FuelExhausted)?;
        Ok(())
    }

    /// Charges for one node of the tree.
    pub fn spend_node(&mut self) -> Result<(), FuelExhausted> {
        self.spend(UNIT)
    }

    /// Charges for reading or writing this many bytes of text: one unit for 256 bytes.
    pub fn spend_bytes(&mut self, n: usize) -> Result<(), FuelExhausted> {
        self.spend(n as u64)
    }

    /// Charges for visiting this many values.
    pub fn spend_elements(&mut self, n: usize) -> Result<(), FuelExhausted> {
        self.spend(ELEMENT.saturating_mul(n as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_exactly_the_fuel() {
        let mut meter = FuelMeter::new();
        for _ in 0..FUEL - 1 {
            meter.spend_node().unwrap();
        }
        meter.spend_bytes(255).unwrap();
        assert_eq!(meter.spend_bytes(2), Err(FuelExhausted));
        meter.spend_bytes(1).unwrap();
        assert_eq!(meter.spend_node(), Err(FuelExhausted));
    }
}
