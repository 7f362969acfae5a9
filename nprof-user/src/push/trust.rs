//! By which authorities a receiver is known, and TLS with those that are.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::Error;
use super::options::Options;
use crate::sys::small_file;

/// TLS 1.2 and 1.3 with receivers that the user's authorities vouch for or, where there are none, those of the host.
pub(super) fn connector(options: &Options) -> Result<TlsConnector, Error> {
    let roots = match &options.ca {
        Some(path) => of_file(path)?,
        None => of_host(options.ca_key)?,
    };
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|source| Error::Tls { endpoint: options.endpoint.to_string(), source })?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

fn of_file(path: &Path) -> Result<RootCertStore, Error> {
    let pem = small_file::read(path)?;
    let mut roots = RootCertStore::empty();
    // What the parser says is dropped: it quotes the file.
    let all = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>().unwrap_or_default();
    let (added, _) = roots.add_parsable_certificates(all);
    if added == 0 { Err(Error::NoAuthority { path: path.to_path_buf() }) } else { Ok(roots) }
}

fn of_host(ca_key: &'static str) -> Result<RootCertStore, Error> {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::debug!("certificates of authorities are left out: {error}");
    }
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 { Err(Error::NoTrust { key: ca_key }) } else { Ok(roots) }
}
