// Command ledgerchecker judges heads and proofs of the ledger with code that is not ours:
// golang.org/x/mod/sumdb/note and golang.org/x/mod/sumdb/tlog.
//
//	ledgerchecker proof FILE             check a batch proof
//	ledgerchecker tree FILE              print size and root over the lines of an export
//	ledgerchecker consistency FILE       check that one head continues another
//	ledgerchecker sign KEYFILE TEXTFILE  sign a text, and print the note
package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

type proofDocument struct {
	Schema string `json:"schema"`
	Data   struct {
		Batch     string `json:"batch"`
		Head      string `json:"head"`
		PublicKey string `json:"public_key"`
		Entries   []struct {
			Index int64    `json:"index"`
			Entry string   `json:"entry"`
			Path  []string `json:"path"`
		} `json:"entries"`
	} `json:"data"`
}

type consistencyDocument struct {
	PublicKey string   `json:"public_key"`
	Old       string   `json:"old"`
	New       string   `json:"new"`
	Proof     []string `json:"proof"`
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: ledgerchecker proof|tree|consistency|sign FILE [FILE]")
		os.Exit(2)
	}
	commands := map[string]func([]string) error{
		"proof": proof, "tree": tree, "consistency": consistency, "sign": sign,
	}
	command, known := commands[os.Args[1]]
	if !known {
		fmt.Fprintln(os.Stderr, "unknown command", os.Args[1])
		os.Exit(2)
	}
	if err := command(os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func proof(arguments []string) error {
	var document proofDocument
	if err := readJSON(arguments[0], &document); err != nil {
		return err
	}
	size, root, err := openHead(document.Data.Head, document.Data.PublicKey)
	if err != nil {
		return err
	}
	for _, entry := range document.Data.Entries {
		path, err := hashes(entry.Path)
		if err != nil {
			return err
		}
		leaf := tlog.RecordHash([]byte(entry.Entry))
		if err := tlog.CheckRecord(tlog.RecordProof(path), size, root, entry.Index, leaf); err != nil {
			return fmt.Errorf("entry %d: %w", entry.Index, err)
		}
	}
	fmt.Println(len(document.Data.Entries), "entries in a tree of", size)
	return nil
}

func tree(arguments []string) error {
	data, err := os.ReadFile(arguments[0])
	if err != nil {
		return err
	}
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		found := make([]tlog.Hash, len(indexes))
		for at, index := range indexes {
			found[at] = stored[index]
		}
		return found, nil
	})
	var size int64
	for _, line := range bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n")) {
		more, err := tlog.StoredHashes(size, line, reader)
		if err != nil {
			return err
		}
		stored = append(stored, more...)
		size++
	}
	root, err := tlog.TreeHash(size, reader)
	if err != nil {
		return err
	}
	fmt.Println(size, base64.StdEncoding.EncodeToString(root[:]))
	return nil
}

func consistency(arguments []string) error {
	var document consistencyDocument
	if err := readJSON(arguments[0], &document); err != nil {
		return err
	}
	oldSize, oldRoot, err := openHead(document.Old, document.PublicKey)
	if err != nil {
		return err
	}
	newSize, newRoot, err := openHead(document.New, document.PublicKey)
	if err != nil {
		return err
	}
	path, err := hashes(document.Proof)
	if err != nil {
		return err
	}
	if err := tlog.CheckTree(tlog.TreeProof(path), newSize, newRoot, oldSize, oldRoot); err != nil {
		return err
	}
	fmt.Println(newSize, "continues", oldSize)
	return nil
}

func sign(arguments []string) error {
	key, err := os.ReadFile(arguments[0])
	if err != nil {
		return err
	}
	text, err := os.ReadFile(arguments[1])
	if err != nil {
		return err
	}
	signer, err := note.NewSigner(strings.TrimSpace(string(key)))
	if err != nil {
		return err
	}
	signed, err := note.Sign(&note.Note{Text: string(text)}, signer)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(signed)
	return err
}

// openHead checks the signature of a head and reads its size and root.
func openHead(text, key string) (int64, tlog.Hash, error) {
	verifier, err := note.NewVerifier(key)
	if err != nil {
		return 0, tlog.Hash{}, err
	}
	opened, err := note.Open([]byte(text), note.VerifierList(verifier))
	if err != nil {
		return 0, tlog.Hash{}, err
	}
	lines := strings.Split(opened.Text, "\n")
	if len(lines) < 4 || lines[0] != verifier.Name() {
		return 0, tlog.Hash{}, fmt.Errorf("not a head of %s", verifier.Name())
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil {
		return 0, tlog.Hash{}, err
	}
	root, err := tlog.ParseHash(lines[2])
	return size, root, err
}

func hashes(texts []string) ([]tlog.Hash, error) {
	found := make([]tlog.Hash, 0, len(texts))
	for _, text := range texts {
		hash, err := tlog.ParseHash(text)
		if err != nil {
			return nil, err
		}
		found = append(found, hash)
	}
	return found, nil
}

func readJSON(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}
