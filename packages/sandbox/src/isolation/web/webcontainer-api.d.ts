// Names the SDK’s package without installing it, so that the import of it can stand in the source for bundlers to find.

declare module '@webcontainer/api';
