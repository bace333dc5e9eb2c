package platform

import (
	"context"
	"errors"
)

var errNoService = errors.New("not there yet")

func (s Service) install(context.Context, ServiceOptions) (ServiceReport, error) {
	return ServiceReport{}, errNoService
}
func (s Service) uninstall(context.Context) (ServiceReport, error) {
	return ServiceReport{}, errNoService
}
func (s Service) start(context.Context) error                   { return errNoService }
func (s Service) stop(context.Context) error                    { return errNoService }
func (s Service) status(context.Context) (ServiceStatus, error) { return ServiceStatus{}, errNoService }
