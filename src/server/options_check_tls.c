/* Certificate and key files are looked at even where they are not served: a wrong path is better known today.
 */
#include "options_internal.h"

#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <string.h>

/* Reads a file that an option names. NULL when reported, or out of memory (*err says which). */
static char *read_named(const struct options *o, enum options_id id, const char *name, size_t *out_bytes,
                        int *err, struct option_report *report) {
    char path[OPTIONS_PATH_BYTES];
    char *text = NULL;
    *err = options_find_file(path, name);
    if (*err == 0) {
        *err = options_read_whole(&text, out_bytes, path);
    }
    if (*err < 0 && *err != -ENOMEM) {
        option_report_add(report, OPTION_ERROR, &o->origins[id], "%s: cannot read %s: %s",
                          options_table.specs[id].name, name, strerror(-*err));
        *err = -EINVAL;
    }
    return text;
}

static X509 *load_certificate(const struct options *o, struct option_report *report, int *err) {
    size_t n_bytes;
    char *text = read_named(o, OPTIONS_ID_cert, o->cert, &n_bytes, err, report);
    if (text == NULL) {
        return NULL;
    }
    BIO *bio = BIO_new_mem_buf(text, (int)n_bytes);
    X509 *certificate = bio == NULL ? NULL : PEM_read_bio_X509(bio, NULL, NULL, NULL);
    if (certificate == NULL) {
        option_report_add(report, OPTION_ERROR, &o->origins[OPTIONS_ID_cert],
                          "cert: %s holds no certificate in PEM form", o->cert);
        *err = -EINVAL;
    }
    BIO_free(bio);
    free(text);
    return certificate;
}

/* Gives the password of pkey-pwd, or none: nobody is asked on a terminal. */
static int give_password(char *buffer, int n_buffer, int for_writing, void *context) {
    (void)for_writing;
    const char *password = context;
    size_t n = password == NULL ? 0 : strlen(password);
    if (n_buffer < 0 || n > (size_t)n_buffer) {
        return -1;
    }
    memcpy(buffer, password == NULL ? "" : password, n);
    return (int)n;
}

static EVP_PKEY *load_key(const struct options *o, struct option_report *report, int *err) {
    size_t n_bytes;
    char *text = read_named(o, OPTIONS_ID_pkey, o->pkey, &n_bytes, err, report);
    if (text == NULL) {
        return NULL;
    }
    BIO *bio = BIO_new_mem_buf(text, (int)n_bytes);
    EVP_PKEY *key = bio == NULL ? NULL : PEM_read_bio_PrivateKey(bio, NULL, give_password, o->pkey_pwd);
    if (key == NULL) {
        option_report_add(report, OPTION_ERROR, &o->origins[OPTIONS_ID_pkey],
                          "pkey: %s holds no private key in PEM form%s", o->pkey,
                          o->pkey_pwd != NULL ? " that pkey-pwd opens" : ", or one that needs pkey-pwd");
        *err = -EINVAL;
    }
    BIO_free(bio);
    explicit_bzero(text, n_bytes);
    free(text);
    return key;
}

int options_check_certificates(const struct options *o, struct option_report *report) {
    if (o->no_tls && !o->dtls) {
        return 0;
    }
    int cert_err = 0, key_err = 0;
    X509 *certificate = o->cert == NULL ? NULL : load_certificate(o, report, &cert_err);
    EVP_PKEY *key = o->pkey == NULL ? NULL : load_key(o, report, &key_err);
    if (certificate != NULL && key != NULL && X509_check_private_key(certificate, key) != 1) {
        option_report_add(report, OPTION_ERROR, &o->origins[OPTIONS_ID_pkey],
                          "pkey: the key in %s does not match the certificate in %s", o->pkey, o->cert);
        key_err = -EINVAL;
    }
    X509_free(certificate);
    EVP_PKEY_free(key);
    ERR_clear_error();
    return cert_err == -ENOMEM || key_err == -ENOMEM ? -ENOMEM : 0;
}
