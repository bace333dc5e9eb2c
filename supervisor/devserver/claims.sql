-- What the claims generation changes (OpenCode 2.1 and 2.2): the table is renamed,
-- which SQLite carries into every foreign key, a turn counts its resumes, and the
-- partial index is renamed with its table.
ALTER TABLE `session` RENAME TO `session_v2`;
ALTER TABLE `session_v2` ADD COLUMN `resume_attempts` integer NOT NULL DEFAULT 0;
DROP INDEX `session_time_suspended_idx`;
CREATE INDEX `session_v2_time_suspended_idx` ON `session_v2` (`time_suspended`) WHERE "session_v2"."time_suspended" is not null;
