// checker reads a history of reads and writes of rows from standard input, one JSON object a line, and says whether it
// is linearizable, row by row: whether the answers are those of rows that are in one place and change at one moment.
//
//	{"client": 3, "key": 7, "write": true, "value": "3-12", "call": 1000, "return": 2000}
//
// Times are nanoseconds of one clock. A write whose return is 0 may take effect at any time after its call, or never.
//
// What a checker needs grows faster than a history. So a history is cut where that leaves nothing open: behind an operation during which
// there was no other, which says what the row had then.
// Exits with 0 when it is linearizable, with 1 when it is not, with 2 when that cannot be said.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

const patience = 5 * time.Minute

// What a row has before the first write.
const initial = "0"

type operation struct {
	Client int    `json:"client"`
	Key    int    `json:"key"`
	Write  bool   `json:"write"`
	Value  string `json:"value"`
	Call   int64  `json:"call"`
	Return int64  `json:"return"`
}

// A row that begins with this value.
func register(value string) porcupine.Model {
	return porcupine.Model{
		Init: func() interface{} { return value },
		Step: func(state, input, output interface{}) (bool, interface{}) {
			done := input.(operation)
			if done.Write {
				return true, done.Value
			}
			return state.(string) == done.Value, state
		},
	}
}

func main() {
	rows, count, err := read(os.Stdin)
	if err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
	keys := make([]int, 0, len(rows))
	for key := range rows {
		keys = append(keys, key)
	}
	sort.Ints(keys)
	for _, key := range keys {
		switch check(rows[key]) {
		case porcupine.Illegal:
			fmt.Printf("violation: the %d operations of row %d are not linearizable\n", len(rows[key]), key)
			os.Exit(1)
		case porcupine.Unknown:
			fmt.Printf("row %d: %d operations are too many to be checked within %v\n", key, len(rows[key]), patience)
			os.Exit(2)
		}
	}
	fmt.Printf("linearizable: %d operations on %d rows\n", count, len(rows))
}

// Checks the operations of one row, part by part.
func check(row []porcupine.Operation) porcupine.CheckResult {
	row = settle(row)
	sort.SliceStable(row, func(i, j int) bool { return row[i].Call < row[j].Call })
	begin, value, deadline := 0, initial, time.Now().Add(patience)
	ended := int64(math.MinInt64)
	for at, done := range row {
		isAlone := ended < done.Call && (at+1 == len(row) || done.Return < row[at+1].Call)
		if done.Return > ended {
			ended = done.Return
		}
		if !isAlone && at+1 < len(row) {
			continue
		}
		left := time.Until(deadline)
		if left <= 0 {
			return porcupine.Unknown
		}
		result := porcupine.CheckOperationsTimeout(register(value), row[begin:at+1], left)
		if result != porcupine.Ok {
			return result
		}
		begin, value = at+1, done.Input.(operation).Value
	}
	return porcupine.Ok
}

// Writes whose end is not known: nobody can tell one from none that nobody has seen, and one that was seen was done by then.
func settle(row []porcupine.Operation) []porcupine.Operation {
	seen := make(map[string]int64)
	for _, done := range row {
		operation := done.Input.(operation)
		if first, known := seen[operation.Value]; !operation.Write && (!known || done.Return < first) {
			seen[operation.Value] = done.Return
		}
	}
	settled := make([]porcupine.Operation, 0, len(row))
	for _, done := range row {
		if done.Return == math.MaxInt64 {
			first, known := seen[done.Input.(operation).Value]
			if !known {
				continue
			}
			// A read that ended before it began is a violation, and stays one.
			if done.Return = first; first < done.Call {
				done.Return = done.Call
			}
		}
		settled = append(settled, done)
	}
	return settled
}

func read(input io.Reader) (map[int][]porcupine.Operation, int, error) {
	rows := make(map[int][]porcupine.Operation)
	count := 0
	lines := bufio.NewScanner(input)
	for lines.Scan() {
		var done operation
		if err := json.Unmarshal(lines.Bytes(), &done); err != nil {
			return nil, 0, fmt.Errorf("line %d: %v", count+1, err)
		}
		end := done.Return
		if end == 0 {
			end = math.MaxInt64
		}
		rows[done.Key] = append(rows[done.Key], porcupine.Operation{
			ClientId: done.Client, Input: done, Call: done.Call, Output: nil, Return: end,
		})
		count++
	}
	return rows, count, lines.Err()
}
