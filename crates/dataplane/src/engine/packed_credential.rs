//! The proof of an account, on its way to the process that takes over: over the socket pair to our own child,
//! and nowhere else.

use std::sync::Arc;

use config::Secret;
use serde::{Deserialize, Serialize};
use upstream::{Credential, CredentialSecret};
use zeroize::Zeroizing;

/// A [`Credential`] that can be written down, and not shown.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PackedCredential {
    user: String,
    account: u64,
    secret: PackedSecret,
}

#[derive(Serialize, Deserialize)]
enum PackedSecret {
    Password(String),
    NativeStage1([u8; 20]),
}

impl PackedCredential {
    pub(crate) fn of(credential: &Credential) -> Self {
        Self {
            user: credential.user.to_string(),
            account: credential.account,
            secret: match &credential.secret {
                CredentialSecret::Password(password) => PackedSecret::Password(password.reveal().to_owned()),
                CredentialSecret::NativeStage1(stage1) => PackedSecret::NativeStage1(*stage1),
            },
        }
    }

    pub(crate) fn into_credential(mut self) -> Credential {
        Credential {
            user: Arc::from(std::mem::take(&mut self.user)),
            account: self.account,
            secret: match &mut self.secret {
                PackedSecret::Password(password) => {
                    CredentialSecret::Password(Secret::new(std::mem::take(password)))
                }
                PackedSecret::NativeStage1(stage1) => CredentialSecret::NativeStage1(*stage1),
            },
        }
    }
}

impl Drop for PackedCredential {
    fn drop(&mut self) {
        if let PackedSecret::Password(password) = &mut self.secret {
            drop(Zeroizing::new(std::mem::take(password)));
        }
    }
}
