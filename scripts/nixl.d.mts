export declare const nixlLibrary: string;
export declare function fetchNixl(): string;
