export { createPostgresArchive, type PostgresArchiveOptions } from "./postgres-archive.ts";
