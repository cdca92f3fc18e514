package clientconfig

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/pbkdf2"
	"crypto/sha1" // the default of PBKDF2 (RFC 8018), which older keys have
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"hash"
)

var (
	errWrongPassword = errors.New("wrong password")
	errEncryption    = errors.New("a key that is encrypted in a way that this program does not know (PBES2 with PBKDF2 and AES-CBC)")
)

// The shapes of PKCS#8 and PKCS#5 (RFC 5958, RFC 8018).
type (
	encryptedKey struct {
		Algorithm pkix.AlgorithmIdentifier
		Data      []byte
	}
	pbes2 struct{ Derivation, Encryption pkix.AlgorithmIdentifier }
	kdf   struct {
		Salt       []byte
		Iterations int
		KeyLength  int                      `asn1:"optional"`
		PRF        pkix.AlgorithmIdentifier `asn1:"optional"`
	}
)

var (
	oidPBES2  = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 13}
	oidPBKDF2 = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 12}
)

// prf returns the hash of a pseudo-random function of PBKDF2; the default is HMAC with SHA-1.
func prf(id asn1.ObjectIdentifier) func() hash.Hash {
	switch id.String() {
	case "", "1.2.840.113549.2.7":
		return sha1.New
	case "1.2.840.113549.2.9":
		return sha256.New
	case "1.2.840.113549.2.11":
		return sha512.New
	}
	return nil
}

// keySize returns the size of the key of AES-CBC with that name; 0 for another cipher.
func keySize(id asn1.ObjectIdentifier) int {
	switch id.String() {
	case "2.16.840.1.101.3.4.1.2":
		return 16
	case "2.16.840.1.101.3.4.1.22":
		return 24
	case "2.16.840.1.101.3.4.1.42":
		return 32
	}
	return 0
}

// maxIterations bounds the work that a file can ask for; OpenSSL writes 2048.
const maxIterations = 10_000_000

// decryptPKCS8 decrypts a PKCS#8 key, with the password of ssl.key.password.
func decryptPKCS8(der []byte, password string) ([]byte, error) {
	var outer encryptedKey
	var scheme pbes2
	var derivation kdf
	var iv []byte
	if _, err := asn1.Unmarshal(der, &outer); err != nil || !outer.Algorithm.Algorithm.Equal(oidPBES2) {
		return nil, errEncryption
	}
	if _, err := asn1.Unmarshal(outer.Algorithm.Parameters.FullBytes, &scheme); err != nil || !scheme.Derivation.Algorithm.Equal(oidPBKDF2) {
		return nil, errEncryption
	}
	if _, err := asn1.Unmarshal(scheme.Derivation.Parameters.FullBytes, &derivation); err != nil {
		return nil, errEncryption
	}
	sum, size := prf(derivation.PRF.Algorithm), keySize(scheme.Encryption.Algorithm)
	if sum == nil || size == 0 || derivation.Iterations < 1 || derivation.Iterations > maxIterations {
		return nil, errEncryption
	}
	if _, err := asn1.Unmarshal(scheme.Encryption.Parameters.FullBytes, &iv); err != nil || len(iv) != aes.BlockSize {
		return nil, errEncryption
	}
	if len(outer.Data) == 0 || len(outer.Data)%aes.BlockSize != 0 {
		return nil, errEncryption
	}
	key, err := pbkdf2.Key(sum, password, derivation.Salt, derivation.Iterations, size)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	plain := make([]byte, len(outer.Data))
	cipher.NewCBCDecrypter(block, iv).CryptBlocks(plain, outer.Data)
	padding := int(plain[len(plain)-1])
	if padding < 1 || padding > aes.BlockSize {
		return nil, errWrongPassword
	}
	plain = plain[:len(plain)-padding]
	// One wrong password in some 250 leaves a padding that looks right.
	if _, err := x509.ParsePKCS8PrivateKey(plain); err != nil {
		return nil, errWrongPassword
	}
	return plain, nil
}
