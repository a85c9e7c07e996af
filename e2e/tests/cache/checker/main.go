// checker reads a history of reads and writes of rows from standard input, one JSON object a line, and says whether it
// is linearizable, row by row: whether the answers are those of rows that are in one place and change at one moment.
//
//	{"client": 3, "key": 7, "write": true, "value": "3-12", "call": 1000, "return": 2000}
//
// Times are nanoseconds of one clock. A write whose return is 0 may take effect at any time after its call, or never.
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

var register = porcupine.Model{
	Init: func() interface{} { return initial },
	Step: func(state, input, output interface{}) (bool, interface{}) {
		done := input.(operation)
		if done.Write {
			return true, done.Value
		}
		return state.(string) == done.Value, state
	},
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
		switch porcupine.CheckOperationsTimeout(register, rows[key], patience) {
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
