//! The size of a clip that follows what is given, and what happens to pictures of other proportions.

use families::Description;

use crate::error::{Error, Field, Result};
use crate::media::Pictures;
use crate::request::{Fit, Given, Media, Request};

/// Proportions that differ by less than this share are the same to any eye.
const ALIKE: f64 = 0.02;

/// A clip does not follow a picture that is longer than this many times its other side.
const LONGEST: usize = 64;

/// Height and width of a request, and how pictures come to have them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Frame {
    pub(crate) size: [usize; 2],
    pub(crate) fit: Fit,
    /// What is given, with its own height and width.
    given: Vec<(Field, [usize; 2])>,
}

impl Frame {
    /// The height and width asked for. One that is left out follows the picture or clip that is given,
    /// at about as many pixels as the model makes by itself; without one it is the model's own. Sides that follow are
    /// multiples of `grain` times what the model takes.
    ///
    /// # Errors
    /// What is given cannot be read, or has proportions that no clip follows.
    pub(crate) fn of(request: &Request, model: &Description, grain: usize) -> Result<Frame> {
        let mut given = Vec::new();
        for (field, media) in request.given.first().into_iter().flat_map(pictures) {
            given.push((field, Pictures::first_size(media, field)?));
        }
        // A keyframe or a mask is made to fit what is there.
        let leads =
            |(field, _): &&(Field, [usize; 2])| !matches!(field, Field::Keyframe | Field::Mask);
        let lead = given.iter().find(leads).copied();
        let [_, high, wide] = model.defaults.size;
        let size = match (request.height, request.width, lead) {
            (Some(height), Some(width), _) => [height, width],
            (height, width, None) => [height.unwrap_or(high), width.unwrap_or(wide)],
            (_, _, Some((field, [high, wide]))) if high.max(wide) > LONGEST * high.min(wide) => {
                let reason = format!(
                    "it is {wide}x{high} (width x height), and no clip follows such proportions; give a height \
                     and a width"
                );
                return Err(Error::request(field, reason));
            }
            (height, width, Some((_, own))) => following([height, width], own, (model, grain)),
        };
        if request.fit.is_some() && !request.given.iter().any(shows) {
            let reason =
                "nothing is given that could be fitted; leave it out, or give a picture or a clip";
            return Err(Error::request(Field::Fit, reason.to_owned()));
        }
        Ok(Frame { size, fit: request.fit.unwrap_or(Fit::Crop), given })
    }

    /// What becomes of what is given, where that is not what it was.
    pub(crate) fn notes(&self) -> impl Iterator<Item = String> {
        self.given.iter().filter_map(|own| self.note(*own))
    }

    fn note(&self, (field, own): (Field, [usize; 2])) -> Option<String> {
        let [high, wide] = own;
        let [height, width] = self.size;
        let (tall, wide_as) = (high as f64 / height as f64, wide as f64 / width as f64);
        let off = (tall / wide_as).max(wide_as / tall) - 1.0;
        if off == 0.0 || own == self.size {
            return None;
        }
        let lost = 100.0 * off / (1.0 + off);
        let what = format!("the {field} of {wide} x {high} (width x height)");
        let to = format!("{width} x {height}");
        Some(match self.fit {
            Fit::Stretch if off < ALIKE => return None,
            Fit::Stretch => format!(
                "{what} is stretched to {to}, by {:.0} % more one way than the other",
                100.0 * off
            ),
            Fit::Crop => format!("{what} is cropped to {to}: {lost:.1} % of it is not seen"),
            Fit::Pad => format!("{what} is padded to {to}: {lost:.1} % of the clip is black"),
        })
    }
}

/// Whether there are pictures among what is given.
fn shows(given: &Given) -> bool {
    !given.references.is_empty() || pictures(given).next().is_some()
}

/// What is made as large as the clip, first things first: what comes first decides the proportions.
fn pictures(given: &Given) -> impl Iterator<Item = (Field, &Media)> {
    let all = [
        (Field::Image, &given.image),
        (Field::Video, &given.video),
        (Field::VideoPrefix, &given.video_prefix),
        (Field::LastImage, &given.last_image),
        (Field::Mask, &given.mask),
    ];
    let single = all.into_iter().filter_map(|(field, media)| Some((field, media.as_ref()?)));
    single.chain(given.keyframes.iter().map(|(_, media)| (Field::Keyframe, media)))
}

/// The height and width that are not asked for, in the proportions of `[high, wide]`: multiples that the
/// model takes, rounded down where both are free, so that memory does not grow.
fn following(
    asked: [Option<usize>; 2],
    [high, wide]: [usize; 2],
    (model, grain): (&Description, usize),
) -> [usize; 2] {
    let geometry = &model.geometry;
    let steps = [1, 2].map(|axis| (grain * geometry.factors[axis] * geometry.patch[axis]).max(1));
    let ratio = high as f64 / wide as f64;
    let nearest =
        |length: f64, step: usize| (length / step as f64).round().max(1.0) as usize * step;
    match asked {
        [Some(height), Some(width)] => [height, width],
        [Some(height), None] => [height, nearest(height as f64 / ratio, steps[1])],
        [None, Some(width)] => [nearest(width as f64 * ratio, steps[0]), width],
        [None, None] => {
            let area = (model.defaults.size[1] * model.defaults.size[2]) as f64;
            let below = |length: f64, step: usize| (length.round() as usize / step).max(1) * step;
            [below((area * ratio).sqrt(), steps[0]), below((area / ratio).sqrt(), steps[1])]
        }
    }
}
