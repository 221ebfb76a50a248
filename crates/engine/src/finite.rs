//! Where values that are not finite come from.

use burn::tensor::Tensor;
use nn::Store;

use crate::error::{Error, Result};

/// Checks an activation; if it is not finite, looks for the weight that is to blame.
///
/// # Errors
/// It is not finite.
pub(crate) fn check<const D: usize>(tensor: &Tensor<D>, stage: &str, store: &Store) -> Result<()> {
    let values = tensor.to_data();
    let sound = values.as_slice::<f32>().is_ok_and(|values| values.iter().all(|x| x.is_finite()));
    if sound {
        return Ok(());
    }
    let cause = match store.first_not_finite() {
        Some(name) => format!(": tensor `{name}` of {} is not finite", store.origin()),
        None => {
            "; every weight is finite, so the sums overflowed: is it the right model?".to_owned()
        }
    };
    Err(Error::NotFinite { stage: stage.to_owned(), cause })
}
