//! Batches of the loader as training wants them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use burn::tensor::{Device, Tensor, TensorData};
use data::loader::{self, Loader, Partial, Replica, Samples};
use data::store::{AUDIO_LATENTS, BESIDE, IMAGE, LATENTS, MASK, Origin, REF_LATENTS, Sample, TEXT};
use nn::Context;
use train::{Batch, Cursor, Error, Feed, Field, Share, VideoLatents};

use crate::model::TextForm;

/// Where samples come from and how they are batched: everything but the place in it.
#[derive(Clone)]
pub struct Source {
    /// The samples to learn from.
    pub samples: Arc<dyn Samples>,
    /// Samples that are only looked at.
    pub held_out: Arc<dyn Samples>,
    /// The hash of what the samples are.
    pub identity: String,
    /// What stands for a dropped caption, by key.
    pub null: BTreeMap<String, TensorData>,
    /// How batches are made.
    pub options: loader::LoaderOptions,
    /// How the family wants its text.
    pub text: TextForm,
    /// Latent frames, rows and columns of a token.
    pub patch: [usize; 3],
    /// Keys of what the student is shown of pictures.
    pub shown: Vec<&'static str>,
    /// What there is to say of the samples.
    pub notes: Vec<String>,
}

/// Some of the samples of a source.
pub(crate) struct Picked {
    samples: Arc<dyn Samples>,
    /// Where they are among all.
    places: Vec<usize>,
}

impl Picked {
    /// Those at some places.
    pub(crate) fn of(
        samples: &Arc<dyn Samples>,
        places: impl IntoIterator<Item = usize>,
    ) -> Arc<dyn Samples> {
        let samples = Arc::clone(samples);
        Arc::new(Picked { samples, places: places.into_iter().collect() })
    }

    /// The first of each group: of each set of keys and shapes.
    pub(crate) fn kinds(samples: &Arc<dyn Samples>) -> Arc<dyn Samples> {
        let mut seen = BTreeSet::new();
        Picked::of(samples, (0..samples.count()).filter(|at| seen.insert(samples.group(*at))))
    }
}

impl Samples for Picked {
    fn count(&self) -> usize {
        self.places.len()
    }

    fn group(&self, index: usize) -> String {
        self.samples.group(self.places[index])
    }

    fn read(&self, index: usize) -> data::Result<Sample> {
        self.samples.read(self.places[index])
    }
}

/// A loader as a feed.
pub(crate) struct LoaderFeed {
    source: Source,
    loader: Loader,
    replica: Replica,
    device: Device,
}

impl LoaderFeed {
    /// Batches from the beginning on.
    ///
    /// # Errors
    /// There are no samples, or they cannot be batched so.
    pub(crate) fn new(source: Source, device: Device) -> data::Result<LoaderFeed> {
        LoaderFeed::of_replica(source, Replica::ONLY, device)
    }

    /// A replica's part of the same batches.
    ///
    /// # Errors
    /// As [`LoaderFeed::new`].
    pub(crate) fn of_replica(
        source: Source,
        replica: Replica,
        device: Device,
    ) -> data::Result<LoaderFeed> {
        let loader = source.loader(replica, loader::Cursor::default())?;
        Ok(LoaderFeed { source, loader, replica, device })
    }

    /// Where its batches come from.
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// All samples of a source, a batch for each size.
    ///
    /// # Errors
    /// They cannot be read.
    pub(crate) fn whole(source: Source, device: Device) -> data::Result<Vec<Batch>> {
        let count = source.samples.count();
        if count == 0 {
            return Ok(Vec::new());
        }
        let options = loader::LoaderOptions {
            batch: count,
            caption_dropout: 0.0,
            partial: Partial::Keep,
            ..source.options
        };
        let mut feed = LoaderFeed::new(Source { options, ..source }, device)?;
        let (mut batches, mut seen) = (Vec::new(), 0);
        while seen < count {
            let batch = feed.loader.next_batch()?;
            batches.push(feed.convert(&batch)?);
            seen += batch.len();
        }
        Ok(batches)
    }

    fn convert(&self, batch: &loader::LoadedBatch) -> data::Result<Batch> {
        let rates: Vec<f64> = batch.origins.iter().map(|origin| origin.fps).collect();
        // A reference that is slower than its clip has fewer frames in the same time.
        let own_rates: Vec<f64> = batch.origins.iter().map(Origin::reference_fps).collect();
        let mut fields = BTreeMap::new();
        for key in batch.data().keys().filter(|key| !key.ends_with(".mask")) {
            let field = match key.as_str() {
                LATENTS | REF_LATENTS => Field::Video(VideoLatents {
                    values: batch.tensor(key, &self.device)?,
                    rates: if key == REF_LATENTS { own_rates.clone() } else { rates.clone() },
                }),
                AUDIO_LATENTS => Field::Audio(self.sound(batch)?),
                MASK => Field::Mask(self.mask(batch.tensor(key, &self.device)?)),
                key if key.starts_with(TEXT) => {
                    let (tokens, mask) = batch.text(key, &self.device)?;
                    Field::Text(self.context(tokens, mask)?)
                }
                _ => continue,
            };
            fields.insert(key.clone(), field);
        }
        // A dataset may hold more than this student looks at.
        let shows = |key| self.source.shown.contains(&key);
        if shows(IMAGE) {
            let image: Tensor<3> = batch.tensor(IMAGE, &self.device)?;
            for field in fields.values_mut() {
                if let Field::Text(context) = field {
                    context.image = Some(image.clone());
                }
            }
        }
        let beside = shows(BESIDE).then(|| batch.tensor(BESIDE, &self.device)).transpose()?;
        Ok(Batch { samples: batch.len(), fields, beside })
    }

    /// Latents of sounds, `[B, C, T, bins]`; those of a sound without bins are stored without them.
    fn sound(&self, batch: &loader::LoadedBatch) -> data::Result<Tensor<4>> {
        match batch.data()[AUDIO_LATENTS].shape().len() {
            3 => Ok(batch.tensor::<3>(AUDIO_LATENTS, &self.device)?.unsqueeze_dim(3)),
            _ => batch.tensor(AUDIO_LATENTS, &self.device),
        }
    }

    fn context(&self, tokens: Tensor<3>, mask: Tensor<2>) -> data::Result<Context> {
        let context = self.source.text.context(tokens, mask);
        context.map_err(|err| data::Error::Loader { reason: err.to_string() })
    }

    /// What is given, token by token, of a mask `[B, f, h, w]` that is 1 where latents are generated: a
    /// token is given if all of its latents are.
    fn mask(&self, generated: Tensor<4>) -> Tensor<2> {
        let [samples, ..] = generated.dims();
        let tokens = nn::patchify(generated.unsqueeze_dim::<5>(1), self.source.patch);
        let [_, count, _] = tokens.dims();
        let any: Tensor<3> = tokens.max_dim(2);
        (-any + 1.0).reshape([samples, count])
    }
}

impl Source {
    fn loader(&self, replica: Replica, cursor: loader::Cursor) -> data::Result<Loader> {
        let samples = Arc::clone(&self.samples);
        Loader::new(samples, self.null.clone(), self.options, replica, cursor)
    }
}

impl Feed for LoaderFeed {
    fn next(&mut self) -> train::Result<Batch> {
        let batch = self.loader.next_batch().map_err(|err| Error::Feed(err.to_string()))?;
        self.convert(&batch).map_err(|err| Error::Feed(err.to_string()))
    }

    fn ahead(&mut self, batches: u64) -> train::Result<Vec<Share>> {
        let share =
            |(whole, first): (usize, usize)| Share { first: first as u64, whole: whole as u64 };
        Ok(self.loader.ahead(batches as usize).into_iter().map(share).collect())
    }

    fn cursor(&self) -> Cursor {
        let loader::Cursor { epoch, position } = self.loader.cursor();
        Cursor { epoch, position }
    }

    fn seek(&mut self, cursor: Cursor) -> train::Result<()> {
        let Cursor { epoch, position } = cursor;
        let loader = self.source.loader(self.replica, loader::Cursor { epoch, position });
        self.loader = loader.map_err(|err| Error::Feed(err.to_string()))?;
        Ok(())
    }
}
