//! API keys, and whose they are.

use std::path::Path;

use blake3::Hash;

use crate::error::{Error, Result};

/// No file of keys is longer.
const LONGEST_FILE: u64 = 1 << 20;

/// Shorter keys can be guessed.
const SHORTEST: usize = 16;

/// The keys of a file. Only their hashes are held.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    entries: Vec<(String, Hash)>,
}

impl Keys {
    /// Reads a file with a key per line, as `KEY` or `CLIENT:KEY`. Empty lines and those that begin with # are left out.
    ///
    /// # Errors
    /// It cannot be read, holds no key, or one that is too short or has the name of another.
    pub fn read(path: &Path) -> Result<Keys> {
        let text = kernels::read_text(path, LONGEST_FILE).map_err(Error::file("read", path))?;
        let keys = Keys::parse(&text).map_err(|reason| wrong(path, &reason))?;
        Ok(keys)
    }

    fn parse(text: &str) -> std::result::Result<Keys, String> {
        let mut entries: Vec<(String, Hash)> = Vec::new();
        let lines = text.lines().map(str::trim).enumerate();
        for (at, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            let number = at + 1;
            let (client, key) = match line.split_once(':') {
                Some((client, key)) => (client.trim().to_owned(), key.trim()),
                None => (format!("line {number}"), line),
            };
            if key.len() < SHORTEST {
                return Err(format!(
                    "the key of line {number} has fewer than {SHORTEST} characters"
                ));
            }
            if client.is_empty() || entries.iter().any(|(known, _)| *known == client) {
                return Err(format!("line {number} has the name of another client, or none"));
            }
            entries.push((client, blake3::hash(key.as_bytes())));
        }
        match entries.is_empty() {
            true => Err("it holds no key".to_owned()),
            false => Ok(Keys { entries }),
        }
    }

    /// Whose key it is. All of them are compared, each in constant time.
    pub(crate) fn client(&self, key: &str) -> Option<&str> {
        let asked = blake3::hash(key.as_bytes());
        let mut found = None;
        for (client, hash) in &self.entries {
            // Hashes compare in constant time.
            if *hash == asked {
                found = Some(client.as_str());
            }
        }
        found
    }
}

fn wrong(path: &Path, reason: &str) -> Error {
    Error::Settings(format!("{}: {reason}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::Keys;

    #[test]
    fn keys_have_clients_and_others_have_none() {
        let text = "# ours\nanna: 0123456789abcdef\n\nfedcba9876543210\n";
        let keys = Keys::parse(text).unwrap();
        assert_eq!(keys.client("0123456789abcdef"), Some("anna"));
        assert_eq!(keys.client("fedcba9876543210"), Some("line 4"));
        for wrong in ["", "0123456789abcde", "0123456789abcdef0", "anna"] {
            assert_eq!(keys.client(wrong), None, "{wrong}");
        }
        for bad in
            ["", "# none", "short", "a:0123456789abcdef\na:0123456789abcdeg", ":0123456789abcdef"]
        {
            assert!(Keys::parse(bad).is_err(), "{bad}");
        }
    }
}
