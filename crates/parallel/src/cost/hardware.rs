//! What ranks run on.

/// A way between two ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bytes a second that a rank sends, while it receives as many.
    pub bandwidth: f64,
    /// Seconds that a call takes however little is sent.
    pub latency: f64,
}

impl Link {
    /// Seconds of so many calls that send so many bytes together.
    pub(super) fn seconds(&self, calls: f64, bytes: f64) -> f64 {
        calls * self.latency + bytes / self.bandwidth
    }
}

/// What ranks run on.
#[derive(Clone, Debug, PartialEq)]
pub struct Hardware {
    /// Its name in tables.
    pub name: String,
    /// Operations a second of a rank, by its data sheet or at its best.
    pub flops: f64,
    /// The part of them that matrix products reach.
    pub efficiency: f64,
    /// The part of them that attention reaches.
    pub attention: f64,
    /// Bytes a second that a rank reads and writes in work that is no product.
    pub stream: f64,
    /// Bytes of a number that is computed.
    pub value_bytes: u64,
    /// Bytes of memory: of a rank, or of a host where its ranks share it.
    pub memory: u64,
    /// Whether the ranks of a host share memory, and with it one copy of the weights.
    pub shared_memory: bool,
    /// Bytes that the program itself needs: of a rank, or of a host.
    pub program: u64,
    /// Bytes that each of several ranks of a host needs beside that: its threads, and pages that it has freed and
    /// keeps.
    pub rank_program: u64,
    /// Ranks that a host runs at full speed.
    pub ranks_per_host: usize,
    /// How many hosts there are; as many as it takes if not said.
    pub hosts: Option<usize>,
    /// Between ranks of a host.
    pub within: Link,
    /// Between ranks of different hosts.
    pub between: Link,
}

impl Hardware {
    /// Which host a rank is on, of so many ranks.
    pub fn host(&self, rank: usize, ranks: usize) -> usize {
        rank / self.ranks_of_host(ranks)
    }

    /// Ranks on one host, of so many.
    pub(super) fn ranks_of_host(&self, ranks: usize) -> usize {
        let most = self.hosts.map_or(0, |hosts| ranks.div_ceil(hosts.max(1)));
        self.ranks_per_host.max(most).max(1)
    }

    /// How much slower a rank is where more of them run than a host has room for.
    pub(super) fn crowding(&self, ranks: usize) -> f64 {
        let here = self.ranks_of_host(ranks).min(ranks) as f64;
        (here / self.ranks_per_host.max(1) as f64).max(1.0)
    }

    /// The slowest link of a group.
    pub(super) fn link(&self, group: &[usize], ranks: usize) -> Link {
        let first = group.first().map(|rank| self.host(*rank, ranks));
        match group.iter().all(|rank| Some(self.host(*rank, ranks)) == first) {
            true => self.within,
            false => self.between,
        }
    }
}
