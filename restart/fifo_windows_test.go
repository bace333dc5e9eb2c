package restart

func mkfifo(string) error { return nil }
