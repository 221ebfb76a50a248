//! What a file of the hub must be: so many bytes with such a hash, which is also its name in the cache.

use std::io::Read;

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};

/// A file of a revision.
pub(super) struct Blob {
    /// Its path in the repository.
    pub(super) path: String,
    /// Its length in bytes.
    pub(super) size: u64,
    /// Its name in the cache: the hash in hexadecimal digits.
    pub(super) name: String,
}

impl Blob {
    /// A file that the hub calls by this entity tag, if the tag is a hash we know: SHA-256 for large
    /// files, git's SHA-1 for small ones.
    pub(super) fn new(path: &str, size: u64, tag: &str) -> Option<Blob> {
        let name = tag.trim_start_matches("W/").trim_matches('"').to_ascii_lowercase();
        let known = [40, 64].contains(&name.len()) && name.bytes().all(|c| c.is_ascii_hexdigit());
        known.then(|| Blob { path: path.to_owned(), size, name })
    }

    /// Begins to hash what should be this file.
    pub(super) fn hash(&self) -> Hash {
        if self.name.len() == 64 {
            return Hash(Context::new(&SHA256));
        }
        // Git hashes a header before the content. The hub names small files so, and nothing else is to
        // be had for them; that they came from the hub is for TLS to prove.
        let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
        context.update(format!("blob {}\0", self.size).as_bytes());
        Hash(context)
    }
}

/// A hash in the making.
pub(super) struct Hash(Context);

impl Hash {
    /// Takes in more of the file.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Takes in all that a reader gives, and says how many bytes that were.
    pub(super) fn update_from(&mut self, reader: &mut impl Read) -> std::io::Result<u64> {
        let mut buffer = vec![0; 1 << 16];
        let mut done = 0;
        loop {
            match reader.read(&mut buffer)? {
                0 => return Ok(done),
                count => {
                    self.update(&buffer[..count]);
                    done += count as u64;
                }
            }
        }
    }

    /// The hash in hexadecimal digits.
    pub(super) fn finish(self) -> String {
        self.0.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Blob;

    #[track_caller]
    fn check(tag: &str, content: &str, want: Option<&str>) {
        let hash = Blob::new("a", content.len() as u64, tag).map(|blob| {
            let mut hash = blob.hash();
            hash.update(content.as_bytes());
            hash.finish()
        });
        assert_eq!(hash.as_deref(), want);
    }

    #[test]
    fn a_tag_names_the_hash_of_its_length() {
        // `printf hello | git hash-object --stdin` and `printf hello | sha256sum`.
        let git = "b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0";
        check(git, "hello", Some(git));
        let sha256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
        check(&format!("W/\"{}\"", sha256.to_uppercase()), "hello", Some(sha256));
        check("\"9f620878e06d28774406017480a59fd4-5\"", "hello", None);
        check(&"../".repeat(20), "hello", None);
    }
}
