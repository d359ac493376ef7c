//! How long to wait between two looks at transfers in flight.

use std::time::{Duration, Instant};

/// Looks in a row at first, each giving the processor away once.
const SPINS: u32 = 32;
const SHORTEST: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_millis(2);

/// Adaptive: a sixteenth of the time waited so far, so that waiting costs no core and adds at most
/// six percent.
pub struct Wait {
    since: Instant,
    looks: u32,
}

impl Wait {
    pub fn new() -> Self {
        Wait { since: Instant::now(), looks: 0 }
    }

    /// How long to sleep before the next look; zero to look again at once.
    pub fn next(&mut self) -> Duration {
        self.looks = self.looks.saturating_add(1);
        if self.looks <= SPINS {
            std::thread::yield_now();
            return Duration::ZERO;
        }
        (self.since.elapsed() / 16).clamp(SHORTEST, LONGEST)
    }
}
