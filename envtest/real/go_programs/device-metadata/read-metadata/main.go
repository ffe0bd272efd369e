// Command read-metadata reads files of device metadata with Kubernetes' own library, strictly.
//
// It prints what a reader gets of each file, and the versions of the API in it, as a line of JSON. It fails on a
// file that the library cannot decode or finds invalid, on one with an object that has fields the API does not
// know, and on one whose objects say different things.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/api/metadata/install"
	"k8s.io/dynamic-resource-allocation/devicemetadata"
)

type answer struct {
	Versions []string
	Told     metadata.DeviceMetadata
}

func read(data []byte) (*answer, error) {
	strict := serializer.NewCodecFactory(install.NewScheme(), serializer.EnableStrict).UniversalDeserializer()
	var found answer
	objects := json.NewDecoder(bytes.NewReader(data))
	for {
		var object json.RawMessage
		if err := objects.Decode(&object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if _, _, err := strict.Decode(object, nil, nil); err != nil {
			return nil, fmt.Errorf("strictly: %w", err)
		}
		var told metadata.DeviceMetadata
		var invalid error
		var kind schema.GroupVersionKind
		if err := devicemetadata.DecodeMetadataFromStream(
			json.NewDecoder(bytes.NewReader(object)), &told,
			devicemetadata.DecodeMetadataWithValidationResult(&invalid),
			devicemetadata.DecodeMetadataStoreGVKResult(&kind),
		); err != nil {
			return nil, err
		}
		if invalid != nil {
			return nil, fmt.Errorf("%s is invalid: %w", kind.Version, invalid)
		}
		if len(found.Versions) > 0 && !reflect.DeepEqual(found.Told, told) {
			return nil, fmt.Errorf("%s says something else than %s", kind.Version, found.Versions[0])
		}
		found.Versions = append(found.Versions, kind.Version)
		found.Told = told
	}
	// As readers do: the first object that is known.
	return &found, devicemetadata.DecodeMetadataFromStream(json.NewDecoder(bytes.NewReader(data)), &found.Told)
}

func main() {
	out := json.NewEncoder(os.Stdout)
	for _, file := range os.Args[1:] {
		data, err := os.ReadFile(file)
		if err == nil {
			var found *answer
			if found, err = read(data); err == nil {
				err = out.Encode(found)
			}
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %s\n", file, err)
			os.Exit(1)
		}
	}
}
