package opencode

import (
	"context"
	"database/sql"
	"errors"
)

// prepared keeps the statements of one call that asks the same of many sessions:
// SQLite takes longer to prepare them than to run them.
type prepared struct {
	conn       *sql.Conn
	statements map[string]*sql.Stmt
}

func newPrepared(conn *sql.Conn) *prepared {
	return &prepared{conn: conn, statements: map[string]*sql.Stmt{}}
}

// QueryContext implements querier.
func (p *prepared) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	statement, err := p.statement(ctx, query) //nolint:sqlclosecheck // it is kept until close
	if err != nil {
		return nil, err
	}
	return statement.QueryContext(ctx, args...)
}

// QueryRowContext implements querier.
func (p *prepared) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	statement, err := p.statement(ctx, query) //nolint:sqlclosecheck // it is kept until close
	if err != nil {
		return p.conn.QueryRowContext(ctx, query, args...) // it gives the error
	}
	return statement.QueryRowContext(ctx, args...)
}

func (p *prepared) statement(ctx context.Context, query string) (*sql.Stmt, error) {
	statement := p.statements[query]
	if statement == nil {
		var err error
		if statement, err = p.conn.PrepareContext(ctx, query); err != nil {
			return nil, err
		}
		p.statements[query] = statement
	}
	return statement, nil
}

func (p *prepared) close() error {
	var err error
	for _, statement := range p.statements {
		err = errors.Join(err, statement.Close())
	}
	return err
}
