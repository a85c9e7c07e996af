// client checks go-redis against a listener of the Redis protocol: see ../run.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func check(name string, test func() error) {
	if err := test(); err != nil {
		fmt.Printf("FAILED %s: %v\n", name, err)
		return
	}
	fmt.Printf("ok %s\n", name)
}

func same(found, expected any) error {
	if a, b := fmt.Sprint(found), fmt.Sprint(expected); a != b {
		return fmt.Errorf("found %s, expected %s", a, b)
	}
	return nil
}

func connect(password string, protocol int) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:" + os.Getenv("REDIS_PORT"), Username: "app", Password: password, Protocol: protocol,
		MaxRetries: -1, ReadTimeout: 10 * time.Second,
	})
}

func connectTLS(certificates []tls.Certificate) (*redis.Client, error) {
	pem, err := os.ReadFile(os.Getenv("REDIS_TLS") + "/ca.pem")
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(pem)
	return redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:" + os.Getenv("REDIS_TLS_PORT"), Username: "app", Password: "secret", MaxRetries: -1,
		ReadTimeout: 10 * time.Second,
		TLSConfig:   &tls.Config{RootCAs: authorities, Certificates: certificates},
	}), nil
}

func sql(statement string) error {
	command := exec.Command("sh", "-c", os.Getenv("REDIS_SQL"))
	command.Stdin = strings.NewReader(statement)
	return command.Run()
}

func main() {
	client := connect("secret", 3)
	check("connect", func() error { return same(client.Ping(ctx).Val(), "PONG") })
	check("auth.wrong", func() error {
		err := connect("wrong", 3).Ping(ctx).Err()
		if err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
			return fmt.Errorf("WRONGPASS was expected, not %v", err)
		}
		return nil
	})
	for _, protocol := range []int{2, 3} {
		client := connect("secret", protocol)
		check(fmt.Sprintf("resp%d", protocol), func() error {
			return same(client.HGetAll(ctx, "user@2").Val(), map[string]string{"id": "2", "name": "Bob"})
		})
	}
	check("get", func() error { return same(client.Get(ctx, "name@1").Val(), "Ada") })
	check("get.missing", func() error {
		if err := client.Get(ctx, "name@999").Err(); !errors.Is(err, redis.Nil) {
			return fmt.Errorf("nil was expected, not %v", err)
		}
		return nil
	})
	check("mget", func() error {
		return same(client.MGet(ctx, "name@1", "name@999", "name@2").Val(), []any{"Ada", nil, "Bob"})
	})
	check("hget", func() error { return same(client.HGet(ctx, "user@1", "city").Val(), "London") })
	check("hgetall", func() error {
		return same(client.HGetAll(ctx, "user@1").Val(), map[string]string{"id": "1", "name": "Ada", "city": "London"})
	})
	check("pipeline", func() error {
		pipe := client.Pipeline()
		for i := 0; i < 1000; i++ {
			pipe.Get(ctx, "name@1")
		}
		replies, err := pipe.Exec(ctx)
		if err != nil {
			return err
		}
		for _, reply := range replies {
			if err := same(reply.(*redis.StringCmd).Val(), "Ada"); err != nil {
				return err
			}
		}
		return same(len(replies), 1000)
	})
	check("transaction", func() error {
		pipe := client.TxPipeline()
		first, second := pipe.Get(ctx, "name@1"), pipe.HGet(ctx, "user@2", "name")
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
		return same([]string{first.Val(), second.Val()}, []string{"Ada", "Bob"})
	})
	check("scan", func() error {
		count := 0
		rows := client.Scan(ctx, 0, "number@*", 100).Iterator()
		for rows.Next(ctx) {
			count++
		}
		if err := rows.Err(); err != nil {
			return err
		}
		return same(count, 1000)
	})
	check("write.refused", func() error {
		err := client.Set(ctx, "name@1", "x", 0).Err()
		if err == nil || !strings.Contains(err.Error(), "SQL") {
			return fmt.Errorf("a refusal was expected, not %v", err)
		}
		return nil
	})
	check("flush", func() error {
		return same(client.Do(ctx, "FLUSH").Val(), "OK")
	})
	check("fresh", func() error {
		for i := 0; i < 10; i++ {
			statement := fmt.Sprintf("UPDATE item SET name = 'go-%d' WHERE id = 3", i)
			if err := sql(statement); err != nil {
				return err
			}
			if err := same(client.Get(ctx, "name@3").Val(), fmt.Sprintf("go-%d", i)); err != nil {
				return err
			}
		}
		return nil
	})
	fmt.Println("absent tracking: it keeps no values")
	check("redirect", func() error {
		var id int64
		told := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:" + os.Getenv("REDIS_PORT"), Username: "app", Password: "secret", Protocol: 2,
			ReadTimeout: 10 * time.Second,
			OnConnect: func(ctx context.Context, connection *redis.Conn) error {
				id = connection.ClientID(ctx).Val()
				return nil
			},
		}).Subscribe(ctx, "__redis__:invalidate")
		if _, err := told.ReceiveTimeout(ctx, 10*time.Second); err != nil {
			return err
		}
		reads := connect("secret", 2).Conn()
		if err := reads.Do(ctx, "CLIENT", "TRACKING", "ON", "REDIRECT", id).Err(); err != nil {
			return err
		}
		reads.MGet(ctx, "name@2", "name@3")
		if err := sql("UPDATE item SET name = 'redirected' WHERE id = 3"); err != nil {
			return err
		}
		message, err := told.ReceiveTimeout(ctx, 10*time.Second)
		if err != nil {
			return err
		}
		return same(message.(*redis.Message).PayloadSlice, []string{"name@3"})
	})
	check("tls", func() error {
		folder := os.Getenv("REDIS_TLS")
		certificate, err := tls.LoadX509KeyPair(folder+"/client-cert.pem", folder+"/client-key.pem")
		if err != nil {
			return err
		}
		secure, err := connectTLS([]tls.Certificate{certificate})
		if err != nil {
			return err
		}
		return same(secure.Get(ctx, "name@1").Val(), "Ada")
	})
	check("tls.refused", func() error {
		stranger, err := connectTLS(nil)
		if err == nil && stranger.Get(ctx, "name@1").Err() == nil {
			return errors.New("nobody asked for a certificate")
		}
		return err
	})
}
