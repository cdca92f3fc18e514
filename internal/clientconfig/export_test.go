package clientconfig

// What the tests look at by itself.
var (
	DecryptPKCS8    = decryptPKCS8
	ParseProperties = parseProperties
)
