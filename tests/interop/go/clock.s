// Empty: where it stands, a function may be declared whose body is elsewhere (members.go: the clock).
