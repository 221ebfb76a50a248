//! The sound of a clip, as a WAV file.

use std::io::{BufReader, Cursor};
use std::path::Path;

use hound::{SampleFormat, WavReader, WavSpec, WavWriter};

use super::{Error, Result};
use crate::aside::AsideFile;

/// No file of a sound is longer.
const MOST_BYTES: u64 = 512 << 20;

/// A sound of one channel or several.
#[derive(Clone, Debug, PartialEq)]
pub struct Waveform {
    /// Samples per second.
    pub sample_rate: u32,
    /// How many samples there are for every moment.
    pub channels: usize,
    /// From -1 to 1, those of one moment beside each other.
    pub samples: Vec<f32>,
}

impl Waveform {
    /// A sound of one channel.
    pub fn mono(sample_rate: u32, samples: Vec<f32>) -> Waveform {
        Waveform { sample_rate, channels: 1, samples }
    }

    /// The samples of every channel.
    pub fn split(&self) -> Vec<Vec<f32>> {
        let channel = |at: usize| self.samples.iter().skip(at).step_by(self.channels).copied();
        (0..self.channels).map(|at| channel(at).collect()).collect()
    }

    /// One channel: the mean of all.
    pub fn mixed(&self) -> Vec<f32> {
        let mean = |moment: &[f32]| moment.iter().sum::<f32>() / self.channels as f32;
        self.samples.chunks_exact(self.channels).map(mean).collect()
    }

    /// Reads a WAV file of whole or floating-point numbers.
    ///
    /// # Errors
    ///
    /// If there is no such file, it is no WAV file, or holds no sound.
    pub fn read(path: &Path) -> Result<Waveform> {
        let broken = |reason: String| Error::Decode { path: path.to_owned(), reason };
        let unreadable = |source| Error::Read { path: path.to_owned(), source };
        let file = kernels::open_file(path).map_err(unreadable)?;
        let length = file.metadata().map_or(0, |file| file.len());
        if length > MOST_BYTES {
            let (own, most) = (length >> 20, MOST_BYTES >> 20);
            return Err(broken(format!("it is a file of {own} MB; a sound has at most {most}")));
        }
        let reader = WavReader::new(BufReader::new(file)).map_err(|error| match error {
            hound::Error::IoError(source) => Error::Read { path: path.to_owned(), source },
            other => broken(other.to_string()),
        })?;
        let WavSpec { channels, sample_rate, bits_per_sample, sample_format } = reader.spec();
        // A header may say how many of the bits of its samples count, and say nonsense.
        if !(1..=32).contains(&bits_per_sample) {
            let reason =
                format!("its samples are said to have {bits_per_sample} bits; at most 32 are read");
            return Err(broken(reason));
        }
        let values: Vec<f32> = match sample_format {
            SampleFormat::Float => reader.into_samples::<f32>().collect::<hound::Result<_>>(),
            SampleFormat::Int => {
                let full = (1_i64 << (bits_per_sample - 1)) as f32;
                let scaled = |value: hound::Result<i32>| Ok(value? as f32 / full);
                reader.into_samples::<i32>().map(scaled).collect::<hound::Result<_>>()
            }
        }
        .map_err(|error| broken(error.to_string()))?;
        let channels = usize::from(channels);
        let whole = values.len() / channels.max(1) * channels;
        let samples = values[..whole].to_vec();
        match samples.is_empty() || samples.iter().any(|value| !value.is_finite()) {
            true => Err(broken("it holds no sound, or values that are not finite".to_owned())),
            false => Ok(Waveform { sample_rate, channels, samples }),
        }
    }

    /// Writes a WAV file of 16 bits; what is beyond -1 and 1 is cut.
    ///
    /// # Errors
    ///
    /// If the system refuses; nothing half-written is left then.
    pub fn write(&self, path: &Path) -> Result<()> {
        let write = |source| Error::Write { path: path.to_owned(), source };
        self.prepare(path)?.commit().map_err(write)
    }

    /// The same file, all of it on the disk, which appears when it is committed.
    ///
    /// # Errors
    ///
    /// If the system refuses; nothing is left then.
    pub fn prepare(&self, path: &Path) -> Result<AsideFile> {
        let write = |source| Error::Write { path: path.to_owned(), source };
        AsideFile::prepared(path, &self.wave().map_err(write)?).map_err(write)
    }

    /// The bytes of that file.
    ///
    /// # Errors
    ///
    /// If the format has no place for so many samples.
    pub(super) fn wave(&self) -> std::io::Result<Vec<u8>> {
        let failed = |error: hound::Error| std::io::Error::other(error.to_string());
        let spec = WavSpec {
            channels: self.channels as u16,
            sample_rate: self.sample_rate,
            bits_per_sample: 16,
            sample_format: SampleFormat::Int,
        };
        let mut bytes = Cursor::new(Vec::new());
        let mut writer = WavWriter::new(&mut bytes, spec).map_err(failed)?;
        for sample in &self.samples {
            let level = (sample.clamp(-1.0, 1.0) * f32::from(i16::MAX)).round_ties_even();
            writer.write_sample(level as i16).map_err(failed)?;
        }
        writer.finalize().map_err(failed)?;
        Ok(bytes.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::Waveform;

    #[test]
    fn a_sound_comes_back_within_a_level() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.wav");
        let samples: Vec<f32> = (0..100).map(|at| (at as f32 / 7.0).sin() * 1.2).collect();
        Waveform::mono(8000, samples.clone()).write(&path).unwrap();
        let read = Waveform::read(&path).unwrap();
        assert_eq!((read.sample_rate, read.samples.len()), (8000, 100));
        for (read, wrote) in read.samples.iter().zip(&samples) {
            assert!((read - wrote.clamp(-1.0, 1.0)).abs() < 1e-4, "{read} instead of {wrote}");
        }
        std::fs::write(&path, b"RIFFno").unwrap();
        assert!(Waveform::read(&path).is_err());
    }

    /// A header that says how many bits count may say what no sample has; 24 of 24 are read.
    #[test]
    fn bits_that_no_sample_has_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.wav");
        let deep = include_bytes!("../../../../fuzz/corpus/sound/deep.wav");
        for (bits, is_read) in [(24_u16, true), (33, false), (65, false), (0x0118, false)] {
            let mut bytes = deep.to_vec();
            bytes[38..40].copy_from_slice(&bits.to_le_bytes());
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(Waveform::read(&path).is_ok(), is_read, "{bits} bits");
        }
    }

    #[test]
    fn channels_stay_apart_in_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.wav");
        let samples = vec![0.5, -0.25, 0.0, 1.0];
        Waveform { sample_rate: 8000, channels: 2, samples }.write(&path).unwrap();
        let read = Waveform::read(&path).unwrap();
        let levels: Vec<Vec<i32>> = read
            .split()
            .iter()
            .map(|own| own.iter().map(|value| (value * 4.0).round() as i32).collect())
            .collect();
        assert_eq!((read.channels, levels), (2, vec![vec![2, 0], vec![-1, 4]]));
        assert!((read.mixed()[0] - 0.125).abs() < 1e-3);
    }
}
