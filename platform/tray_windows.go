package platform

// TitleBesideIcon says that the tray's title is shown beside its icon.
const TitleBesideIcon = false

// TrayBeforeLoop says that icon and title can be set before the tray's loop runs.
const TrayBeforeLoop = false
